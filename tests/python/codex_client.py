"""Codex's own program, twice in one conversation, its answers under a schema. Argument: the base URL of a
server whose context holds Codex's prompt of 10,000 tokens. Its key is "secret"."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import codex_cli_bin

SCHEMA = {
    "type": "object",
    "properties": {"summary": {"enum": ["an engine", "a model"]}, "files": {"type": "integer"}},
    "required": ["summary", "files"],
    "additionalProperties": False,
}
CONFIG = f"""
model = "formwork-builtin"
model_provider = "formwork"

[model_providers.formwork]
name = "Formwork"
base_url = "{sys.argv[1]}"
wire_api = "responses"
env_key = "FORMWORK_KEY"
"""


def ask(folder, *arguments):
    """The answer's text, and the tokens of its prompt."""
    program = [codex_cli_bin.bundled_codex_path(), "exec", "--skip-git-repo-check", "--json"]
    done = subprocess.run(
        [*program, "--output-schema", folder / "schema.json", *arguments],
        cwd=folder / "work",
        env={**os.environ, "CODEX_HOME": str(folder), "FORMWORK_KEY": "secret"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    texts = [item["text"] for item in items if item["type"] == "agent_message"]
    assert events[-1]["type"] == "turn.completed" and len(texts) == 1, done.stdout
    return texts[0], events[-1]["usage"]["input_tokens"]


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    (folder / "work").mkdir()
    (folder / "config.toml").write_text(CONFIG)
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    first, prompt = ask(folder, "What is in this folder?")
    second, longer = ask(folder, "resume", "--last", "And now?")
    # The second has the first in its prompt.
    assert longer > prompt, (prompt, longer)
    for answer in (first, second):
        answer = json.loads(answer)
        assert list(answer) == ["summary", "files"], answer
        assert answer["summary"] in ("an engine", "a model"), answer
        assert type(answer["files"]) is int, answer
