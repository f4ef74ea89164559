#!/usr/bin/env python3
"""Holds the dependencies to deny.toml's licences, duplicates and sources where cargo-deny can't be had.

It reads `cargo metadata` and needs nothing but Python's standard library. Advisories need cargo-deny
and its database.
"""

import collections
import json
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def is_allowed(expression, allowed):
    """Whether an SPDX expression holds with the allowed licences alone. "/" is an old way to write OR."""
    words = re.findall(r"\(|\)|[^\s()/]+", expression.replace("/", " OR ").replace(" WITH ", "+WITH+"))
    operators = {"OR": "or", "AND": "and", "(": "(", ")": ")"}
    # Every word becomes an operator or a constant, so there is nothing else to evaluate.
    allowed = {licence.replace(" WITH ", "+WITH+") for licence in allowed}
    return eval(" ".join(operators.get(word, str(word in allowed)) for word in words), {})


def matches(version, prefix):
    return (version + ".").startswith(prefix + ".")


def problems(packages, rules):
    allowed = set(rules["licenses"]["allow"])
    exceptions = {e["name"]: set(e["allow"]) for e in rules["licenses"].get("exceptions", [])}
    versions = collections.defaultdict(set)
    for package in packages:
        name = f"{package['name']} {package['version']}"
        versions[package["name"]].add(package["version"])
        if not package["license"] or not is_allowed(
            package["license"], allowed | exceptions.get(package["name"], set())
        ):
            yield f"{name}: licence {package['license']!r} is not among those of deny.toml"
        source = package["source"]
        registries = rules["sources"]["allow-registry"]
        if source and source.removeprefix("registry+") not in registries:
            yield f"{name}: comes from {source}, which deny.toml doesn't name"
    for name in exceptions.keys() - versions.keys():
        yield f"deny.toml: the exception for {name} is no longer needed"
    skips = [(skip["name"], skip["version"]) for skip in rules["bans"]["skip"]]
    for name, prefix in skips:
        if not any(matches(version, prefix) for version in versions[name]):
            yield f"deny.toml: {name} {prefix} is no longer needed"
    for name, found in sorted(versions.items()):
        left = [v for v in found if not any(s == name and matches(v, p) for s, p in skips)]
        if len(left) > 1:
            yield f"{name} is there as {', '.join(sorted(left))}, and deny.toml skips none of these"


def main():
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--all-features"]
    packages = json.loads(subprocess.check_output(command, cwd=ROOT))["packages"]
    found = list(problems(packages, rules))
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
