#!/usr/bin/env bash
# Builds both wheels (profile dev; WHEEL_PROFILE names another), installs them into a fresh virtual environment and runs
# python/tests and python/engine/tests. FORMWORK_BIN names a folder with executables to take for the wheel formwork,
# which are built where it is absent. Arguments go to pytest. Ends with 75 where the packages that it needs can't be had.
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
"$venv/bin/pip" install --quiet --no-compile -r python/tests/requirements.txt -r python/engine/tests/requirements.txt ||
    exit 75
MATURIN=$tools/bin/maturin WHEEL_PROFILE=$profile python/build.sh "$wheels/$profile" --compatibility linux
# Each variable FORMWORK_X stands for a flag of the executables, and none has this one.
unset FORMWORK_BIN
# formwork depends on formwork-grammar, and on nothing else.
"$venv/bin/pip" install --quiet --no-compile --no-index --find-links "$wheels/$profile" formwork
"$venv/bin/mypy" --config-file python/engine/pyproject.toml --cache-dir "$venv/mypy" python/engine/source/formwork
(cd "$venv" && bin/stubtest formwork._engine)
# Not from the source folder: what was installed is what is tested.
for tests in python/tests python/engine/tests; do
    status=0
    (cd "$tests" && "$venv/bin/python" -m pytest -q -p no:cacheprovider "$@") || status=$?
    # A choice of tests (5 is none) may be of one folder alone.
    if [ "$status" -ne 0 ] && { [ "$status" -ne 5 ] || [ "$#" -eq 0 ]; }; then
        exit "$status"
    fi
done
