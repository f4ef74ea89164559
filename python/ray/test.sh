#!/usr/bin/env bash
# Installs formwork-ray into a virtual environment, checks its types and runs python/ray/tests. FORMWORK_BIN names the
# folder with Formwork's executables (target/debug where absent). Arguments go to pytest, such as -m "not slow". Ends
# with 75 where the packages that it needs (750 MB) can't be had.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
venv=${RAY_VENV:-$target/ray-venv}
export FORMWORK_BIN=${FORMWORK_BIN:-$target/debug}
export RAY_USAGE_STATS_ENABLED=0

if ! "$venv/bin/python" -c "import ray.serve, ray.data, pytest, jsonschema, mypy, anthropic, openai" >/dev/null 2>&1; then
    python3 -m venv "$venv" || exit 75
    "$venv/bin/pip" install --quiet --no-compile -r python/ray/tests/requirements.txt || exit 75
fi
# From a copy: setuptools builds in the source folder.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r python/ray/. "$copy"
"$venv/bin/pip" install --quiet --no-compile --no-deps --force-reinstall "$copy"
"$venv/bin/mypy" --config-file python/ray/pyproject.toml --cache-dir "$copy/mypy" python/ray/source/formwork/ray
# Not from the source folder: what was installed is what is tested.
cd python/ray/tests
"$venv/bin/python" -m pytest -q -p no:cacheprovider "$@"
