#!/usr/bin/env bash
# Builds wheels from the source distributions of both, without the network, and imports what they bring. WHEEL_PROFILE is dev where
# absent; FORMWORK_BIN as in python/build.sh. Not part of .ci/run: it compiles everything in other folders again. Needs
# the tools that python/test.sh has put into its folder. Ends with 75 where these can't be had.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
tools=$target/python-tools
if ! "$tools/bin/maturin" --version >/dev/null 2>&1; then
    python3 -m venv "$tools" || exit 75
    "$tools/bin/pip" install --quiet --no-compile "maturin>=1.9,<2" || exit 75
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
MATURIN=$tools/bin/maturin python/sdist.sh "$work/sdists"
export WHEEL_PROFILE=${WHEEL_PROFILE:-dev} CARGO_TARGET_DIR=$target CARGO_NET_OFFLINE=true PATH=$tools/bin:$PATH
export MATURIN_PEP517_ARGS="--profile $WHEEL_PROFILE --compatibility linux"
for sdist in "$work"/sdists/*.tar.gz; do
    "$tools/bin/pip" wheel --quiet --no-build-isolation --no-deps --no-index --wheel-dir "$work/wheels" "$sdist"
done
unset FORMWORK_BIN WHEEL_PROFILE
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --no-compile --no-index --find-links "$work/wheels" formwork
cd "$work"
venv/bin/python - <<'PYTHON'
import formwork
from formwork.grammar import GrammarCompiler, GrammarMatcher, TokenizerInfo

grammar = GrammarCompiler(TokenizerInfo([b"a", b"b", b""], stop_token_ids=[2])).compile_regex("a+")
assert GrammarMatcher(grammar).next_token_ids() == [0]
assert formwork.LLM
PYTHON
venv/bin/formwork --version
