#!/usr/bin/env bash
# Builds both wheels, formwork-grammar and formwork, into the folder $1: WHEEL_PROFILE (wheel where absent) names the
# profile. FORMWORK_BIN names a folder with executables of the same version, which go into the wheel as they are; else
# they are built. MATURIN names the packer where it isn't in PATH; arguments behind the folder go to it. WHEELS lists
# the manifests of the wheels where only some are wanted.
set -euo pipefail
out=$(realpath -m "$1")
shift
cd "$(dirname "$0")/.."
profile=${WHEEL_PROFILE:-wheel}
target=${CARGO_TARGET_DIR:-$PWD/target}
maturin=${MATURIN:-maturin}
executables=(formwork formwork-batch formwork-engine-core)

if [ -n "${FORMWORK_BIN:-}" ]; then
    folder=$FORMWORK_BIN
else
    cargo build --quiet --profile "$profile" -p engine-core -p engine-frontend --bins
    folder=$target/$([ "$profile" = dev ] && echo debug || echo "$profile")
fi
data=python/engine/data
trap 'rm -rf "$data"' EXIT
rm -rf "$data"
mkdir -p "$data/scripts"
for name in "${executables[@]}"; do
    install -m 755 "$folder/$name" "$data/scripts/$name"
    # Symbols are most of an executable that is built for tests. Without the tool it's merely larger.
    strip "$data/scripts/$name" 2>/dev/null || true
done
for manifest in ${WHEELS:-python/Cargo.toml python/engine/Cargo.toml}; do
    "$maturin" build --quiet --manifest-path "$manifest" --profile "$profile" --strip --out "$out" "$@"
done
