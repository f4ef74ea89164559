#!/usr/bin/env bash
# Builds formwork-dynamo and runs its tests: Dynamo's conformance kit, and workers over Dynamo's request plane.
# FORMWORK_BIN names the folder with Formwork's executables (target/debug where absent). Arguments go to cargo test.
# Ends with 75 where what Dynamo's crates are built with is missing: docs/dynamo.md names the packages.
set -euo pipefail
cd "$(dirname "$0")"
export FORMWORK_BIN=${FORMWORK_BIN:-$(cd ../.. && pwd)/target/debug}

for tool in protoc cmake pkg-config; do
    command -v "$tool" >/dev/null || { echo "missing: $tool" >&2; exit 75; }
done
pkg-config --exists libzmq || { echo "missing: libzmq" >&2; exit 75; }
# Dynamo's crates are some gigabytes of objects, and nobody debugs them here.
export CARGO_INCREMENTAL=0
cargo fmt --check
cargo clippy --locked --all-targets -- -D warnings
cargo test --locked "$@"
