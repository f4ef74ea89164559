"""The examples of docs/python-engine.md and of the wheel's README, each by itself, as a program."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGES = [ROOT / "docs/python-engine.md", ROOT / "python/engine/README.md"]
EXAMPLES = [
    pytest.param(code, id=f"{page.name}-{number}")
    for page in PAGES
    for number, code in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S))
]


def test_there_are_examples():
    assert len(EXAMPLES) == 7


@pytest.mark.parametrize("code", EXAMPLES)
def test_an_example_runs(code):
    subprocess.run([sys.executable, "-c", code], check=True)
