#!/usr/bin/env bash
# Builds the wheel (profile dev; WHEEL_PROFILE names another), installs it into a fresh virtual environment
# and runs python/tests. Arguments go to pytest. Ends with 75 where the packages that it needs can't be had.
set -euo pipefail
cd "$(dirname "$0")/.."
profile=${WHEEL_PROFILE:-dev}
target=${CARGO_TARGET_DIR:-$PWD/target}
tools=$target/python-tools
venv=$target/python-venv
wheels=$target/wheels

if ! "$tools/bin/maturin" --version >/dev/null 2>&1; then
    python3 -m venv "$tools" || exit 75
    "$tools/bin/pip" install --quiet --no-compile "maturin>=1.9,<2" || exit 75
fi
rm -rf "$wheels/$profile" "$venv"
python3 -m venv "$venv" || exit 75
"$venv/bin/pip" install --quiet --no-compile -r python/tests/requirements.txt || exit 75
"$tools/bin/maturin" build --quiet --manifest-path python/Cargo.toml --profile "$profile" \
    --compatibility linux --out "$wheels/$profile"
"$venv/bin/pip" install --quiet --no-compile --no-deps "$wheels/$profile"/formwork_grammar-*.whl
# Not from the source folder: what was installed is what is tested.
cd python/tests
exec "$venv/bin/python" -m pytest -q "$@"
