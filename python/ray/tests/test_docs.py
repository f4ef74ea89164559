"""The examples of docs/ray.md, as one program."""

import os
import pathlib
import re

import pytest

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs/ray.md"


@pytest.mark.slow
def test_the_examples_run(cluster, executables, monkeypatch):
    monkeypatch.setenv("PATH", executables + os.pathsep + os.environ["PATH"])
    monkeypatch.delenv("FORMWORK_BIN")
    examples = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert len(examples) == 5
    names = {"__name__": "examples"}
    for number, code in enumerate(examples):
        exec(compile(code, f"example {number}", "exec"), names)
