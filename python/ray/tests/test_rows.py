"""`batch` over Ray Datasets, against `formwork-batch` on one machine and a validator that isn't ours."""

import asyncio
import json
import os
import pathlib
import shutil
import signal
import subprocess

import jsonschema
import pytest
import ray
from conftest import SCHEMA, engine_pids, line

import formwork.ray
from formwork.ray._engine import BatchEngine, EngineSpec
from formwork.ray._process import executable

MODEL = pathlib.Path(__file__).resolve().parents[3] / "builtin-model/model"
CONSTRAINT = {"json": SCHEMA}
BODY = {"max_tokens": 60, "temperature": 1.0}


def answers(rows, **arguments):
    dataset = formwork.ray.batch(ray.data.from_items(rows), structured_outputs=CONSTRAINT, body=BODY, **arguments)
    return {row["id"]: row for row in dataset.iter_rows()}


@pytest.mark.slow
def test_a_node_is_lost_in_mid_batch(second_node, tmp_path):
    """2,000 rows, two nodes, one killed: 2,000 answers, none twice, all valid, equal to those of one machine."""
    rows = [{"id": i, "prompt": f"Tell me about {i}.", "seed": 7 * i} for i in range(2000)]
    lines = [line(str(row["id"]), row["prompt"], seed=row["seed"], structured_outputs=CONSTRAINT) for row in rows]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    command = [executable("formwork-batch"), "--no-progress", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl"]
    environment = {name: value for name, value in os.environ.items() if name != "FORMWORK_BIN"}
    subprocess.run(command, check=True, env=environment, capture_output=True)
    results = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    expected = {int(r["custom_id"]): r["response"]["body"]["choices"][0]["message"]["content"] for r in results}

    dataset = formwork.ray.batch(ray.data.from_items(rows), structured_outputs=CONSTRAINT, body=BODY, engines=2)
    got = []
    for row in dataset.iter_rows():
        got.append(row)
        if len(got) == 300:
            assert second_node.num_engines() == 1
            second_node.kill()
    assert len(got) == 2000
    assert {row["id"]: row["answer"] for row in got} == expected
    for row in got:
        jsonschema.validate(json.loads(row["answer"]), SCHEMA)
        assert row["structured_output_complete"] is True


def test_an_answer_depends_on_the_row_alone(cluster):
    rows = [{"id": i, "prompt": "Say anything."} for i in range(40)]
    one = answers(rows, engines=1, batch_size=7)
    assert answers(list(reversed(rows)), engines=2, batch_size=16) == one
    assert len({row["answer"] for row in one.values()}) > 1
    assert answers(rows, seed=1) != one


@pytest.mark.slow
def test_engines_that_are_killed_are_replaced(cluster):
    rows = [{"id": i, "prompt": f"Tell me about {i}."} for i in range(300)]
    expected = answers(rows)
    dataset = formwork.ray.batch(ray.data.from_items(rows), structured_outputs=CONSTRAINT, body=BODY)
    got = []
    for row in dataset.iter_rows():
        got.append(row)
        if len(got) == 1:
            killed = list(engine_pids())
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
    assert killed and len(got) == 300
    assert {row["id"]: row for row in got} == expected


def test_no_engine_outlives_its_actors(cluster):
    answers([{"id": 0, "prompt": "Hello"}])
    for _ in range(600):
        if not list(engine_pids()):
            return
        signal.sigtimedwait([], 0.1)
    raise AssertionError("an engine is still there a minute after its dataset's end")


def test_a_wrong_row_is_that_row_s_error(cluster):
    rows = [{"id": 0, "prompt": "Hello"}, {"id": 1, "prompt": None}]
    got = {row["id"]: row for row in formwork.ray.batch(ray.data.from_items(rows), body=BODY).iter_rows()}
    assert got[0]["error"] is None and got[0]["answer"]
    assert got[1]["answer"] is None and "messages[0].content" in got[1]["error"] and "line" not in got[1]["error"]


def test_messages_and_other_columns_stay(cluster):
    rows = [{"id": 0, "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello"}], "k": "v"}]
    (row,) = formwork.ray.batch(ray.data.from_items(rows), structured_outputs={"choice": ["yes", "no"]}).take_all()
    assert row["k"] == "v" and row["messages"] == rows[0]["messages"]
    assert row["answer"] in ("yes", "no") and row["finish_reason"] == "stop" and row["error"] is None


def test_calls_of_tools_and_logprobs_come_back(cluster):
    """And are the same where Ray computes a row twice."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    body = {"max_tokens": 60, "tools": [tool], "tool_choice": "required", "logprobs": True}

    def run():
        return formwork.ray.batch(ray.data.from_items([{"prompt": "call f"}]), body=body).take_all()

    (row,) = run()
    assert (row["answer"], row["finish_reason"], row["error"]) == (None, "tool_calls", None)
    (call,) = json.loads(row["message"])["tool_calls"]
    assert call["function"]["name"] == "f"
    jsonschema.validate(json.loads(call["function"]["arguments"]), schema)
    assert len(json.loads(row["logprobs"])["content"]) == row["completion_tokens"]
    assert run() == [row]


def refusal(rows, **arguments):
    with pytest.raises(Exception) as caught:
        formwork.ray.batch(ray.data.from_items(rows), **arguments).take_all()
    return str(caught.value)


def test_a_node_without_the_model_is_refused_by_name(cluster):
    message = refusal([{"prompt": "Hello"}], model="/nowhere/model")
    assert "EngineError: node " in message and "has no model at '/nowhere/model', which " in message and "asked for" in message


def test_a_field_that_the_engine_refuses_ends_the_job(cluster):
    message = refusal([{"prompt": "Hello"}] * 5, body={"max_token": 5})
    assert "refused the fields max_token that" in message and "did you mean `max_tokens`" in message


def test_a_column_of_ours_is_refused(cluster):
    assert "has a column 'answer'" in refusal([{"prompt": "Hello", "answer": "x"}])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"body": {"stream": True}}, "body has the field 'stream': rows are whole"),
        ({"body": {"n": 2}}, "body has the field 'n'"),
        ({"body": {"stop": {1, 2}}}, "must be JSON"),
        ({"engines": 0}, "engines is 0"),
        ({"engines": (3, 2)}, r"engines is \(3, 2\)"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"num_cpus": 0}, "num_cpus is 0"),
        ({"engine_args": ["--threads=3"]}, "engine_args has '--threads=3'"),
        ({"engine_args": "--foo"}, "engine_args must be a list"),
        ({"model": 3}, "model must be"),
    ],
)
def test_wrong_arguments_are_named_at_once(cluster, arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        formwork.ray.batch(ray.data.from_items([{"prompt": "Hello"}]), **arguments)


def test_another_model_at_the_same_path_is_refused(executables, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    spec = EngineSpec.of(str(tmp_path), [], 1)
    (tmp_path / "weights.cache").write_text("an engine's")
    spec.check_node()
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(formwork.ray.EngineError, match="has another model at .* than "):
        spec.check_node()


@pytest.mark.parametrize("size", [5_000_000, 20_000_000])
def test_other_weights_of_the_same_size_are_refused(executables, tmp_path, size):
    """Also where every node has the model but the caller hasn't, who then compares nothing."""
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"\0" * size)
    here = EngineSpec.of(str(tmp_path), [], 1)
    weights.write_bytes(b"\0" * (size - 1) + b"\1")
    with pytest.raises(formwork.ray.EngineError, match="has another model at .* than "):
        here.check_node()
    weights.write_bytes(b"\0" * (size // 2 - 100_000) + b"\1" * 200_000 + b"\0" * (size // 2 - 100_000))
    with pytest.raises(formwork.ray.EngineError, match="has another model at .* than "):
        here.check_node()


def test_nodes_are_compared_with_each_other(cluster, tmp_path):
    """Where the caller has not the model, as if these were two nodes."""
    spec = EngineSpec(model=str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    spec.check_node()
    spec.check_node()
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(formwork.ray.EngineError, match="^node .* has the model at .* with the fingerprint .*, and node .* has "):
        spec.check_node()
    EngineSpec(model=str(tmp_path)).check_node()


def test_nodes_with_two_commits_of_a_model_of_the_hub_are_refused(cluster, tmp_path, monkeypatch):
    """The branch has moved between their downloads."""
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "hub/models--someone--builtin"
    (folder / "refs").mkdir(parents=True)
    for commit in ("a" * 40, "b" * 40):
        shutil.copytree(MODEL, folder / "snapshots" / commit)
    spec = EngineSpec(model="someone/builtin")

    def answer(commit):
        (folder / "refs/main").write_text(commit)
        engine = BatchEngine(spec)
        try:
            return json.loads(*asyncio.run(engine.answer([(None, line("a", "Hello").encode())])))
        finally:
            engine.stop()

    assert answer("a" * 40)["error"] is None
    assert answer("a" * 40)["error"] is None
    message = f"has the model 'someone/builtin' at the commit {'b' * 40}, and node .* has {'a' * 40}: .*org/name@COMMIT"
    with pytest.raises(formwork.ray.EngineError, match=message):
        answer("b" * 40)


def test_another_version_is_refused(executables):
    spec = EngineSpec(model=None, version="formwork 9.9.9")
    with pytest.raises(formwork.ray.EngineError, match=r"node .* has formwork .*, and .* has formwork 9\.9\.9"):
        spec.check_node()


def test_a_missing_executable_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("FORMWORK_BIN", str(tmp_path))
    with pytest.raises(formwork.ray.EngineError, match="^node .*: formwork-batch is not in the folder FORMWORK_BIN="):
        executable("formwork-batch")
    monkeypatch.delenv("FORMWORK_BIN")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(formwork.ray.EngineError, match="^node .*: formwork is not in PATH, and FORMWORK_BIN is not set"):
        EngineSpec(model=None).check_node()
