"""An engine over the built-in model, for all tests that leave it as it is."""

import os
import pathlib

import pytest

from formwork import LLM


@pytest.fixture(scope="session")
def llm():
    engine = LLM(max_model_len=512, threads=2)
    yield engine
    engine.shutdown()


def cores() -> list[int]:
    """Process ids of this process's engine cores."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            name, rest = (entry / "stat").read_text().split("(", 1)[1].rsplit(") ", 1)
        except OSError:
            continue
        state, parent = rest.split()[:2]
        if name == "formwork-engine"[:15] and int(parent) == os.getpid() and state != "Z":
            found.append(int(entry.name))
    return found
