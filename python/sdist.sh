#!/usr/bin/env bash
# Makes source distributions of both wheels, of what is committed, into the folder $1. pip builds wheels from them where there is
# Rust. That of formwork is the repository, since the executables in the wheel are made of nearly all of it. MATURIN names the
# packer where it isn't in PATH.
set -euo pipefail
mkdir -p "$1"
out=$(realpath "$1")
cd "$(dirname "$0")/.."
"${MATURIN:-maturin}" sdist --manifest-path python/Cargo.toml --out "$out"

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
name=formwork-$version
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git archive --prefix="$name/" HEAD | tar -x -C "$work"
cat >"$work/$name/pyproject.toml" <<'TOML'
[build-system]
requires = ["maturin>=1.9,<2"]
build-backend = "formwork_build"
backend-path = ["python/engine/build"]
TOML
printf 'Metadata-Version: 2.1\nName: formwork\nVersion: %s\nRequires-Python: >=3.11\n' "$version" >"$work/$name/PKG-INFO"
tar -cz -C "$work" --owner=0 --group=0 --sort=name -f "$out/$name.tar.gz" "$name"
