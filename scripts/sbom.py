#!/usr/bin/env python3
"""Writes a CycloneDX 1.5 software bill of materials of the shipped programs, as JSON.

    scripts/sbom.py [--output FILE] [--target TRIPLE]

It reads `cargo metadata` and needs nothing but Python's standard library. The same Cargo.lock gives
the same bytes: there is no time and no random number in it.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import urllib.parse
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The packages whose programs are shipped.
SHIPPED = ["engine-core", "engine-frontend"]
# A namespace of our own, so that serial numbers are no other project's.
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "formwork.invalid")


def metadata(target):
    command = ["cargo", "metadata", "--format-version=1", "--locked"]
    if target:
        command.append(f"--filter-platform={target}")
    return json.loads(subprocess.check_output(command, cwd=ROOT))


def checksums():
    """The checksum of each package in Cargo.lock, by name and version."""
    found, name, version = {}, None, None
    for line in (ROOT / "Cargo.lock").read_text().splitlines():
        key, _, value = line.partition(" = ")
        value = value.strip('"')
        if key == "name":
            name = value
        elif key == "version":
            version = value
        elif key == "checksum":
            found[name, version] = value
    return found


def shipped(graph):
    """Ids of the shipped packages and of all that they are built from, and who needs whom."""
    nodes = {node["id"]: node for node in graph["resolve"]["nodes"]}
    names = {package["id"]: package["name"] for package in graph["packages"]}
    members = set(graph["workspace_members"])
    pending = [id for id in members if names[id] in SHIPPED]
    needs = {}
    while pending:
        id = pending.pop()
        if id in needs:
            continue
        # What only tests need is not in a program.
        needs[id] = sorted(
            dep["pkg"]
            for dep in nodes[id]["deps"]
            if any(kind["kind"] != "dev" for kind in dep["dep_kinds"])
        )
        pending.extend(needs[id])
    return needs


def purl(package):
    name = urllib.parse.quote(package["name"], safe="")
    return f"pkg:cargo/{name}@{urllib.parse.quote(package['version'], safe='')}"


def component(package, sums):
    entry = {
        "type": "library",
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "purl": purl(package),
    }
    if package["license"]:
        # An older way to write "OR".
        expression = package["license"].replace(" / ", "/").replace("/", " OR ")
        entry["licenses"] = [{"expression": expression}]
    checksum = sums.get((package["name"], package["version"]))
    if checksum:
        entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["repository"]:
        entry["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return entry


def bill(graph):
    needs = shipped(graph)
    packages = {package["id"]: package for package in graph["packages"]}
    sums = checksums()
    components = sorted(
        (component(packages[id], sums) for id in needs), key=lambda entry: entry["bom-ref"]
    )
    dependencies = sorted(
        (
            {
                "ref": purl(packages[id]),
                "dependsOn": sorted({purl(packages[need]) for need in needs[id]}),
            }
            for id in needs
        ),
        key=lambda entry: entry["ref"],
    )
    roots = [packages[id] for id in needs if packages[id]["name"] in SHIPPED]
    version = roots[0]["version"]
    formwork = {
        "type": "application",
        "bom-ref": f"formwork@{version}",
        "name": "formwork",
        "version": version,
        "licenses": [{"expression": roots[0]["license"]}],
    }
    dependencies.insert(
        0, {"ref": formwork["bom-ref"], "dependsOn": sorted(purl(root) for root in roots)}
    )
    content = json.dumps([components, dependencies], sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, content)}",
        "version": 1,
        "metadata": {"component": formwork},
        "components": components,
        "dependencies": dependencies,
    }


def check(sbom):
    """What a reader relies on: every reference is to a component, and none is there twice."""
    refs = [entry["bom-ref"] for entry in sbom["components"]]
    refs.append(sbom["metadata"]["component"]["bom-ref"])
    assert len(refs) == len(set(refs)), "a component is listed twice"
    for dependency in sbom["dependencies"]:
        unknown = {dependency["ref"], *dependency["dependsOn"]} - set(refs)
        assert not unknown, f"not listed: {sorted(unknown)}"
    for entry in sbom["components"]:
        is_ours = "hashes" not in entry
        assert "licenses" in entry, f"{entry['name']} names no licence"
        assert is_ours or len(entry["hashes"][0]["content"]) == 64, entry["name"]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--output", type=pathlib.Path, help="a file, instead of standard output")
    arguments.add_argument("--target", help="leave out what only other platforms need")
    given = arguments.parse_args()
    sbom = bill(metadata(given.target))
    check(sbom)
    text = json.dumps(sbom, indent=1, ensure_ascii=False) + "\n"
    if given.output:
        given.output.write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
