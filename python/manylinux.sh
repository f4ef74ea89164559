#!/usr/bin/env bash
# Builds a wheel of formwork-grammar for manylinux2014 (glibc 2.17 and later) into the folder $1, by zig as the linker: any machine
# with Rust will do. TARGET is x86_64-unknown-linux-gnu where absent; aarch64-unknown-linux-gnu needs `rustup target add` of
# it first. WHEEL_PROFILE (wheel where absent) names the profile. The wheel formwork, which carries executables, is built by
# python/build.sh on a machine as old as those that it is for. Ends with 75 where maturin or zig can't be had.
set -euo pipefail
out=$(realpath -m "$1")
cd "$(dirname "$0")/.."
tools=${CARGO_TARGET_DIR:-$PWD/target}/python-tools
host=${TARGET:-x86_64-unknown-linux-gnu}

if ! "$tools/bin/python" -c "import maturin, ziglang" >/dev/null 2>&1; then
    python3 -m venv "$tools" || exit 75
    "$tools/bin/pip" install --quiet --no-compile "maturin>=1.9,<2" "ziglang>=0.13,<1" || exit 75
fi
PATH=$tools/bin:$PATH "$tools/bin/maturin" build --quiet --manifest-path python/Cargo.toml \
    --profile "${WHEEL_PROFILE:-wheel}" --strip --zig --target "$host" --compatibility manylinux2014 --out "$out"
