"""Runs XGrammar's own tests over formwork.compat.xgrammar, and checks that what fails is what exclusions.txt lists.

Needs an interpreter in which formwork-grammar, torch, transformers, pydantic and pytest are installed, and the tests
in ../shared/xgrammar-tests beside the repository; without these tests it says so and ends well, but fails under CI=true.
`--update` writes the list anew: what passes now goes, what fails now comes under `unsorted`, for somebody to give it a
reason. `--of-xgrammar` runs the installed XGrammar instead and says how many pass.
"""

import argparse
import collections
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TESTS = HERE.parents[2] / "shared/xgrammar-tests"
LIST = HERE / "exclusions.txt"
NEEDED = ("formwork.grammar", "torch", "transformers", "pydantic", "pytest")


def run(of: str) -> dict[str, str]:
    """The outcome of each test: passed, skipped, failed, or worded, where only a message has other words."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "outcomes")
        environment = {
            **os.environ,
            "SUITE_OF": of,
            "FORMWORK_OUTCOMES": str(path),
            "PYTHONPATH": str(HERE),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HF_HUB_OFFLINE": "1",
        }
        marks = [
            "-p",
            "neutral",
            "-p",
            "no:cacheprovider",
            "-m",
            "not hf_token_required",
            # Imports xgrammar in a process of its own, where there is no alias: it tests the package, if that is installed.
            "--deselect",
            "test_serialization.py::test_serialized_output_survives_pickle",
            "--rootdir",
            str(TESTS),
        ]
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-q",
                "--tb=no",
                "-rN",
                "--disable-warnings",
                *marks,
                str(TESTS),
            ],
            cwd=TESTS,
            env=environment,
        )
        return dict(reversed(line.split(" ", 1)) for line in path.read_text().splitlines())


def read_list() -> dict[str, tuple[str, list[str]]]:
    """Groups by name, each with its reason and its tests. A heading is `== COUNT NAME: REASON`."""
    groups: dict[str, tuple[str, list[str]]] = {}
    counts: dict[str, int] = {}
    for line in LIST.read_text().splitlines() if LIST.exists() else []:
        if line.startswith("== "):
            count, rest = line[3:].split(" ", 1)
            name, reason = rest.split(": ", 1)
            groups[name], counts[name] = (reason, []), int(count)
        elif line and not line.startswith("#"):
            groups[name][1].append(line)
    for name, (_, tests) in groups.items():
        if counts[name] != len(tests):
            sys.exit(f"{LIST.name}: the group {name} says {counts[name]}, but has {len(tests)} tests")
    return groups


def write_list(groups: dict[str, tuple[str, list[str]]]) -> None:
    """Writes the list, without empty groups."""
    head = [line for line in LIST.read_text().splitlines() if line.startswith("#")] if LIST.exists() else []
    lines = list(head)
    for name, (reason, tests) in groups.items():
        if tests:
            lines += ["", f"== {len(tests)} {name}: {reason}", *sorted(tests)]
    LIST.write_text("\n".join(lines) + "\n")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--update", action="store_true")
    arguments.add_argument("--of-xgrammar", action="store_true")
    given = arguments.parse_args()
    if not TESTS.is_dir():
        print(f"{TESTS} is missing: XGrammar's tests are not run")
        return int(os.environ.get("CI") == "true")
    missing = [name for name in NEEDED if importlib.util.find_spec(name.split(".")[0]) is None]
    if missing:
        print(f"{sys.executable} has no {', '.join(missing)}: XGrammar's tests are not run")
        return 75
    outcomes = run("xgrammar" if given.of_xgrammar else "formwork")
    counts = collections.Counter(outcomes.values())
    print(
        f"{counts['passed']} passed, {counts['worded']} passed but for the words of a message, {counts['failed']} failed, "
        f"{counts['skipped']} skipped, of {len(outcomes)}"
    )
    if given.of_xgrammar:
        return 0
    differ = {test for test, outcome in outcomes.items() if outcome in ("failed", "worded")}
    groups = read_list()
    listed = {test for _, tests in groups.values() for test in tests}
    if given.update:
        groups = {
            name: (reason, [t for t in tests if t in differ]) for name, (reason, tests) in groups.items()
        }
        unsorted = groups.get("unsorted", ("no reason was given yet", []))
        groups["unsorted"] = (unsorted[0], [*unsorted[1], *(differ - listed)])
        write_list(groups)
        return 0
    for test in sorted(differ - listed):
        print(f"{outcomes[test]}, and not listed: {test}")
    for test in sorted(listed - differ):
        print(f"listed, but {outcomes.get(test, 'there is no such test')}: {test}")
    print(f"{len(differ)} tests differ, {len(listed)} are listed")
    return int(differ != listed)


if __name__ == "__main__":
    sys.exit(main())
