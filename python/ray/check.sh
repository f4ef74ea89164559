#!/usr/bin/env bash
# Checks the types of formwork-ray and runs those of its tests that need no cluster, by the Python in PYTHON, which has
# no Ray but aiohttp, starlette, jsonschema, pytest and the official clients (tests/python/requirements.txt has all of
# them). test.sh runs all tests. FORMWORK_BIN names the folder with Formwork's executables. MYPY names mypy; where it is
# absent types aren't checked, which is told.
set -euo pipefail
cd "$(dirname "$0")"
export PYTHONPATH=$PWD/source PYTHONDONTWRITEBYTECODE=1
if [ -n "${MYPY:-}" ]; then
    "$MYPY" --config-file pyproject.toml --cache-dir /dev/null --python-executable "$PYTHON" source/formwork/ray
else
    echo "WARNING: there is no mypy. THE TYPES OF formwork-ray ARE NOT CHECKED in this run." >&2
fi
"$PYTHON" -m pytest -q -p no:cacheprovider "$@" tests
