"""The examples and commands of docs/python.md that need other engines."""

import re
import shlex

import pytest
from conftest import MODEL, ROOT

from formwork.plugins import _host

PAGE = (ROOT / "docs/python.md").read_text()
EXAMPLES = re.findall(r"^<!-- run by python/plugins_test\.sh(?:: (\w+))? -->\n```py\n(.*?)^```", PAGE, re.M | re.S)
COMMANDS = re.findall(r"^\$ (.*)$", PAGE[PAGE.index("## Inside other engines") :], re.M)


def test_there_are_examples_and_commands():
    assert len(EXAMPLES) == 4 and len(COMMANDS) == 4


@pytest.mark.parametrize(("module", "code"), EXAMPLES, ids=[module or "torch" for module, _ in EXAMPLES])
def test_an_example_runs(module, code, monkeypatch, request):
    monkeypatch.chdir(ROOT)
    if module:
        pytest.importorskip(module, reason=f"{module} is not installed")
    if module == "llama_cpp":
        code = code.replace('"model.gguf"', repr(request.getfixturevalue("gguf_path")))
    assert MODEL.endswith("builtin-model/model")
    exec(compile(code, "example", "exec"), {"__name__": "example"})


def test_the_versions_are_those_that_are_checked():
    table = re.findall(r"^\| \[([^\]]+)\]\(#[\w-]+\) \| ([\d.]+) \|", PAGE, re.M)
    assert {name.lower(): series for name, series in table} == _host.SERIES


def test_commands_install_what_the_plugins_are_made_for():
    for command in COMMANDS:
        for package, version in re.findall(r"(\w+)==([\d.]+)", command):
            assert version.startswith(_host.SERIES[package])


def test_sglang_takes_the_command():
    import argparse

    from sglang.srt.plugins import load_plugins

    load_plugins()
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    (command,) = [c for c in COMMANDS if "sglang.launch_server" in c]
    args = parser.parse_args(shlex.split(command)[3:])
    assert (args.grammar_backend, args.reasoning_parser) == ("formwork", "qwen3")


def test_vllm_takes_the_variable():
    (command,) = [c for c in COMMANDS if "vllm serve" in c]
    assert command.startswith("FORMWORK_VLLM=1 vllm serve ")
