#!/usr/bin/env bash
# Builds the wheel formwork into the folder $1, with the executables in it: WHEEL_PROFILE (wheel where absent) names the
# profile. FORMWORK_BIN names a folder with executables of the same version, which are taken as they are; else they are
# built. MATURIN names the packer where it isn't in PATH; arguments behind the folder go to it.
set -euo pipefail
out=$(realpath -m "$1")
shift
cd "$(dirname "$0")/../.."
profile=${WHEEL_PROFILE:-wheel}
target=${CARGO_TARGET_DIR:-$PWD/target}
executables=(formwork formwork-batch formwork-engine-core)

if [ -n "${FORMWORK_BIN:-}" ]; then
    folder=$FORMWORK_BIN
else
    cargo build --quiet --profile "$profile" -p engine-core -p engine-frontend --bins
    folder=$target/$([ "$profile" = dev ] && echo debug || echo "$profile")
fi
scripts=python/engine/data/scripts
rm -rf "$scripts"
mkdir -p "$scripts"
for name in "${executables[@]}"; do
    install -m 755 "$folder/$name" "$scripts/$name"
    # Symbols are most of an executable that is built for tests. Without the tool it's merely larger.
    strip "$scripts/$name" 2>/dev/null || true
done
"${MATURIN:-maturin}" build --quiet --manifest-path python/engine/Cargo.toml --profile "$profile" \
    --strip --out "$out" "$@"
rm -rf python/engine/data
