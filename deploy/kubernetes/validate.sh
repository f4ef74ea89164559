#!/usr/bin/env bash
# Renders deploy/kubernetes by kustomize and checks it against the schemas of Kubernetes, Gateway API, KEDA,
# Prometheus operator and KServe. FORMWORK names a server's executable: its probes and its drain are then run too.
# Ends with 75 where the packages that it needs can't be had (some 45 MB; 280 MB on disk, under target/).
set -euo pipefail
cd "$(dirname "$0")"
tests=$PWD/tests
tools=${CARGO_TARGET_DIR:-$PWD/../../target}/kubernetes-tools
mkdir -p "$tools"
tools=$(cd "$tools" && pwd)

command -v node >/dev/null && command -v npm >/dev/null || { echo "there is no node" >&2; exit 75; }
if ! cmp -s "$tests/requirements.txt" "$tools/requirements.txt"; then
    python3 -m venv "$tools/venv" || exit 75
    "$tools/venv/bin/pip" install --quiet --no-deps --no-compile --retries 1 -r "$tests/requirements.txt" || exit 75
    cp "$tests/requirements.txt" "$tools/"
fi
if ! cmp -s "$tests/package.json" "$tools/package.json" || [ ! -d "$tools/node_modules" ]; then
    cp "$tests/package.json" "$tools/"
    (cd "$tools" && npm install --silent --no-audit --no-fund --no-package-lock) ||
        { rm "$tools/package.json"; exit 75; }
fi

cd "$tests"
export PYTHONDONTWRITEBYTECODE=1
export NODE_MODULES=$tools KUBECTL=$tools/venv/bin/kubectl
# The probes are run also where a manifest is wrong: each tells of its own.
status=0
"$tools/venv/bin/python" -m unittest -q test_manifests || status=1
if [ -n "${FORMWORK:-}" ]; then
    "$tools/venv/bin/python" kubelet.py "$FORMWORK" || status=1
fi
exit "$status"
