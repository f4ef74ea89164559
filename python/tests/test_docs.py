"""The examples of docs/python.md and of the wheel's README, each by itself."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "docs/python.md", ROOT / "python/README.md"]
EXAMPLES = [
    pytest.param(code, id=f"{page.name}-{number}")
    for page in PAGES
    for number, code in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S))
]


def test_there_are_examples():
    assert len(EXAMPLES) == 11


@pytest.mark.parametrize("code", EXAMPLES)
def test_an_example_runs(code):
    exec(compile(code, "example", "exec"), {"__name__": "example"})
