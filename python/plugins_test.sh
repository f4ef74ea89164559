#!/usr/bin/env bash
# Builds the wheel formwork-grammar (profile dev; WHEEL_PROFILE names another, and with wheel the tests take minutes less) and
# runs python/plugins_tests with it inside the packages that its plug-ins are for, on the CPU. Not part of .ci/run: what it installs takes 7 GB, torch and what
# torch needs 6 of them. PLUGINS_TORCH names a folder site-packages of the same Python that has the packages of
# torch_requirements.txt, to take them from there. PLUGINS_LLAMA_CPP=1 adds llama-cpp-python, which is compiled here: 20
# minutes on two cores. PLUGINS_SCHEMAS is how many schemas of MaskBench are taken (200 where absent).
# Arguments go to pytest. Ends with 75 where the packages can't be had.
set -euo pipefail
cd "$(dirname "$0")/.."
profile=${WHEEL_PROFILE:-dev}
target=${CARGO_TARGET_DIR:-$PWD/target}
tools=$target/python-tools
venv=${PLUGINS_VENV:-$target/plugins-venv}
wheels=$target/wheels/plugins-$profile
tests=python/plugins_tests

if ! "$tools/bin/maturin" --version >/dev/null 2>&1; then
    python3 -m venv "$tools" || exit 75
    "$tools/bin/pip" install --quiet --no-compile "maturin>=1.9,<2" || exit 75
fi
if ! cmp -s "$tests/requirements.txt" "$venv/installed.txt"; then
    rm -rf "$venv"
    python3 -m venv "$venv" || exit 75
    if [ -n "${PLUGINS_TORCH:-}" ]; then
        echo "$PLUGINS_TORCH" >"$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')/torch.pth"
    else
        "$venv/bin/pip" install --quiet --no-compile -r "$tests/torch_requirements.txt" || exit 75
    fi
    # Every package is named: what vllm and sglang want beyond these needs a GPU, or is for other models.
    "$venv/bin/pip" install --quiet --no-compile --no-deps -r "$tests/requirements.txt" || exit 75
    cp "$tests/requirements.txt" "$venv/installed.txt"
fi
if [ -n "${PLUGINS_LLAMA_CPP:-}" ] && ! "$venv/bin/python" -c "import llama_cpp" >/dev/null 2>&1; then
    "$venv/bin/pip" install --quiet --no-compile --no-deps -r "$tests/llama_cpp_requirements.txt" || exit 75
fi
rm -rf "$wheels"
"$tools/bin/maturin" build --quiet --manifest-path python/Cargo.toml --profile "$profile" --strip \
    --compatibility linux --out "$wheels"
"$venv/bin/pip" install --quiet --no-compile --no-deps --force-reinstall "$wheels"/*.whl
# A process for each host: what one leaves behind is none of another's business.
cd "$tests"
for tests in test_*.py; do
    status=0
    "$venv/bin/python" -m pytest -q -p no:cacheprovider "$tests" "$@" || status=$?
    # A choice of tests (5 is none) may be of one file alone.
    if [ "$status" -ne 0 ] && { [ "$status" -ne 5 ] || [ "$#" -eq 0 ]; }; then
        exit "$status"
    fi
done
