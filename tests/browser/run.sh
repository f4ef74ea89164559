#!/usr/bin/env bash
# Uses the page at / in a real browser: page.py against a server with the built-in model. Takes the server's
# executable, or builds one. Ends with 75 where no browser or package can be had.
set -euo pipefail
cd "$(dirname "$0")/../.."

formwork=${1:-}
if [ -z "$formwork" ]; then
    cargo build --bins
    formwork=target/debug/formwork
fi

venv=target/python-browser
if ! { [ -x "$venv/bin/python" ] || timeout 60 python3 -m venv "$venv"; } ||
    ! timeout 100 "$venv/bin/pip" install --quiet --no-deps --no-compile --retries 1 --timeout 15 \
        -r tests/browser/requirements.txt; then
    echo "the packages of tests/browser/requirements.txt can't be installed" >&2
    exit 75
fi

# A machine of CI's is ours to install on; others' isn't.
if [ "${CI:-}" = true ] && [ "$(id -u)" = 0 ] && ! command -v chromium >/dev/null; then
    timeout 100 apt-get install --quiet --yes --no-install-recommends chromium >/dev/null 2>&1 ||
        { timeout 30 apt-get update --quiet >/dev/null 2>&1 &&
            timeout 100 apt-get install --quiet --yes --no-install-recommends chromium >/dev/null 2>&1; } || true
fi

address=$(mktemp)
trap 'kill "$server" 2>/dev/null; rm -f "$address"' EXIT
"$formwork" serve --port 0 >"$address" &
server=$!
for _ in $(seq 600); do
    [ -s "$address" ] && break
    kill -0 "$server"
    sleep 0.1
done
status=0
"$venv/bin/python" tests/browser/page.py "$(head -n 1 "$address")/" || status=$?
exit "$status"
