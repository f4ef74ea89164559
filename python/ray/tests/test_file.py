"""`batch_file` against the file that `formwork-batch` writes on one machine."""

import io
import json
import logging
import os
import subprocess
import sys
import time

import pytest
import ray
from conftest import SCHEMA, line

import formwork.ray
from formwork.ray._cluster import resources, warn_without_room
from formwork.ray._file import FileSummary, _resume
from formwork.ray._process import executable


def one_machine(source, target, *flags):
    command = [executable("formwork-batch"), "--no-progress", "-i", source, "-o", target, *flags]
    environment = {name: value for name, value in os.environ.items() if name != "FORMWORK_BIN"}
    subprocess.run(command, check=True, env=environment, capture_output=True)


def results(path):
    """Results without their times."""
    found = [json.loads(text) for text in path.read_text().splitlines()]
    for result in found:
        ((result["response"] or {}).get("body") or {}).pop("created", None)
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory, executables):
    """An input of 2,000 requests without seeds, with blank and wrong lines, and what one machine makes of it."""
    folder = tmp_path_factory.mktemp("files")
    lines = ["\ufeff" + line("first", "Hello")]
    for i in range(2000):
        lines.append(line(str(i), f"Tell me about {i}.", structured_outputs={"json": SCHEMA}))
        if i % 700 == 3:
            lines.append("")
        if i == 20:
            lines.append(line("wrong field", "Hello", max_token=1))
        if i == 1500:
            lines.append("not json")
    (folder / "in.jsonl").write_text("\n".join(lines) + "\n")
    one_machine(folder / "in.jsonl", folder / "expected.jsonl", "--seed", "5")
    return folder


@pytest.mark.slow
def test_a_node_is_lost_and_then_the_driver(files, second_node):
    """The file is that of one machine, whatever is killed; and a half of it, cut anywhere, is gone on with."""
    out = files / "out.jsonl"

    def on_progress(summary):
        if summary.lines > 300:
            second_node.kill()

    summary = formwork.ray.batch_file(
        str(files / "in.jsonl"), str(out), engines=2, seed=5, lines_per_task=250, on_progress=on_progress
    )
    expected = results(files / "expected.jsonl")
    assert results(out) == expected
    assert (summary.lines, summary.failed, summary.resumed) == (2003, 2, 0) and summary.restarts >= 1
    assert summary.first_error == "line 24: unknown field max_token; did you mean `max_tokens`?"

    whole = out.read_bytes()
    half = whole[: len(whole) // 2]
    out.write_bytes(half)
    summary = formwork.ray.batch_file(str(files / "in.jsonl"), str(out), engines=2, seed=5, resume=True)
    assert results(out) == expected and summary.resumed == half.count(b"\n") and summary.failed == 2


def test_nodes_without_room_to_spare(cluster, second_node, tmp_path):
    """One of five engines never starts, and those of the lost node never start again."""
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(line(str(i), f"Tell me about {i}.") + "\n" for i in range(300)))
    one_machine(source, tmp_path / "expected.jsonl")

    def on_progress(summary):
        if summary.lines > 60:
            second_node.kill()

    summary = formwork.ray.batch_file(str(source), str(out), engines=5, lines_per_task=10, on_progress=on_progress)
    assert results(out) == results(tmp_path / "expected.jsonl")
    assert summary.lines == 300


def test_what_the_cluster_has_no_room_for_is_told(cluster, caplog):
    """With what is asked, what there is, and how many can run."""
    # The node that a test before killed is there until Ray has noticed.
    while sum(node["Alive"] for node in ray.nodes()) > 2:
        time.sleep(0.1)
    assert warn_without_room("batch_file", 2, resources(1, 0, None)) is None
    assert warn_without_room("batch_file", 3, resources(1, 0, {"resources": {}})) == (
        "formwork.ray.batch_file: 3 engines with 1 CPU each are asked for, and only 2 can run until nodes are added; "
        "the nodes there are: 2 CPU; 0 CPU"
    )
    caplog.clear()
    formwork.ray.batch(ray.data.from_items([{"prompt": "Hello"}]), num_cpus=16, ray_remote_args={"resources": {"x": 1}})
    formwork.ray.serve_app(min_replicas=5, max_replicas=5)
    assert [record.message for record in caplog.records if record.name == "formwork.ray"] == [
        "formwork.ray.batch: 1 engines with 16 CPU, 1 x each are asked for, and no node has so much, so none can run "
        "until nodes are added; the nodes there are: 2 CPU, 0 x; 0 CPU, 0 x",
        "formwork.ray.serve_app: 5 engines with 1 CPU each are asked for, and only 2 can run until nodes are added; "
        "the nodes there are: 2 CPU; 0 CPU",
    ]


def test_a_run_without_room_for_any_engine_says_so_again(cluster, tmp_path, caplog, monkeypatch):
    """And goes on once there is room."""
    monkeypatch.setattr("formwork.ray._file._PATIENCE_S", 0.5)
    (tmp_path / "in.jsonl").write_text(line("a", "Hello") + "\n")
    nodes = []

    class AddNode(logging.Handler):
        def emit(self, record):
            messages.append(record.getMessage())
            if len(messages) == 2:
                nodes.append(cluster.add_node(num_cpus=3))

    messages, handler = [], AddNode()
    logging.getLogger("formwork.ray").addHandler(handler)
    try:
        summary = formwork.ray.batch_file(str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl"), num_cpus=3)
    finally:
        logging.getLogger("formwork.ray").removeHandler(handler)
        for node in nodes:
            cluster.remove_node(node)
    assert summary.lines == 1 and summary.restarts == 0
    assert "1 engines with 3 CPU each are asked for, and no node has so much" in messages[1]


def test_actors_for_files_load_neither_ray_data_nor_ray_serve(cluster):
    """These take seconds, which each actor's start would take longer."""
    program = (
        "import sys, formwork.ray\n"
        "assert formwork.ray.batch_file and formwork.ray.EngineError\n"
        "assert not {'ray.data', 'ray.serve', 'pyarrow', 'aiohttp'} & set(sys.modules)\n"
        "assert all(getattr(formwork.ray, name) for name in formwork.ray.__all__)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_either_program_goes_on_with_what_the_other_wrote(files, cluster):
    source = files / "small.jsonl"
    source.write_text("\n".join(line(str(i), f"Tell me about {i}.") for i in range(30)) + "\n")
    one_machine(source, files / "small.expected.jsonl")
    expected, whole = results(files / "small.expected.jsonl"), (files / "small.expected.jsonl").read_bytes()
    out = files / "small.out.jsonl"
    out.write_bytes(whole[: len(whole) // 3])
    formwork.ray.batch_file(str(source), str(out), resume=True)
    assert results(out) == expected
    out.write_bytes(out.read_bytes()[: len(whole) // 2])
    one_machine(source, out, "--resume")
    assert results(out) == expected


def test_a_line_keeps_its_answer_by_number_and_id_alone(files, cluster):
    """As docs/ray.md says: what else of a line has changed isn't seen."""
    source, out = files / "changed.jsonl", files / "changed.out.jsonl"
    source.write_text(line("a", "Hello") + "\n")
    one_machine(source, out)
    before = out.read_bytes()
    source.write_text(line("a", "Good bye") + "\n" + line("b", "Hello") + "\n")
    summary = formwork.ray.batch_file(str(source), str(out), resume=True)
    assert (summary.resumed, summary.lines) == (1, 2) and out.read_bytes().startswith(before)


def test_a_cut_anywhere_leaves_the_complete_lines(files):
    """Every length of a small output: what is kept is what ends with a newline, and the input goes on behind it."""
    requests = ["", line("a", "Hello"), "", "not json", line("b", "Hello", max_token=1)]
    source = "\n".join(requests).encode() + b"\n"
    (files / "cut.jsonl").write_bytes(source)
    one_machine(files / "cut.jsonl", files / "cut.expected.jsonl")
    whole = (files / "cut.expected.jsonl").read_bytes()
    read_lines = {0: 0, 1: 2, 2: 4, 3: 5}
    for length in range(len(whole) + 1):
        for tail in (b"", b"\0\0"):
            target, summary = io.BytesIO(whole[:length] + tail), FileSummary()
            number, _ = _resume(io.BytesIO(source), target, "out", summary)
            kept = whole[: whole[:length].rfind(b"\n") + 1]
            assert target.getvalue() == kept, length
            assert (summary.lines, number) == (kept.count(b"\n"), read_lines[kept.count(b"\n")])


def test_outputs_that_are_not_this_input_s_are_refused(files, cluster, tmp_path):
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(line("a", "Hello") + "\n")
    run = lambda **more: formwork.ray.batch_file(str(source), str(out), **more)
    for content, message in [
        (b'{"id":"batch_req_1","custom_id":"b","response":null,"error":null}\n', "custom_id 'b'"),
        (b'{"id":"batch_req_2","custom_id":"a","response":null,"error":null}\n', "'batch_req_2'"),
        (b'{"a": 1}\n', "line 1 is not a result"),
        (b"[]\n", "line 1 is not a result"),
        (b"something else", "is not the beginning of a result"),
        (
            b'{"id":"batch_req_1","custom_id":"a","response":{"status_code":200,"body":{}},"error":null}\n' * 2,
            "line 2 has no request",
        ),
    ]:
        out.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            run(resume=True)
        assert out.read_bytes() == content
    with pytest.raises(ValueError, match="has something in it"):
        run()
    with pytest.raises(ValueError, match="exclude each other"):
        run(resume=True, overwrite=True)
    with pytest.raises(ValueError, match="is the input"):
        formwork.ray.batch_file(str(source), str(source), overwrite=True)
    with pytest.raises(ValueError, match="engines is 0"):
        run(engines=0)
    with pytest.raises(TypeError, match="engine_args must be a list"):
        run(engine_args="--max-num-seqs=8", overwrite=True)
    assert run(overwrite=True).lines == 1


def test_results_of_another_model_are_refused(cluster, tmp_path):
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(line("a", "Hello") + "\n" + line("b", "Hello") + "\n")
    content = b'{"id":"batch_req_1","custom_id":"a","response":{"status_code":200,"body":{"model":"other"}},"error":null}\n'
    out.write_bytes(content)
    with pytest.raises(ValueError, match="results of the model 'other', and this run's is 'formwork-builtin'"):
        formwork.ray.batch_file(str(source), str(out), resume=True)
    assert out.read_bytes() == content


def test_engines_that_cannot_start_end_the_run(cluster, tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text(line("a", "Hello") + "\n")
    with pytest.raises(formwork.ray.EngineError, match="has no model at '/nowhere/model', which .* asked for"):
        formwork.ray.batch_file(str(source), str(tmp_path / "1"), model="/nowhere/model")
    with pytest.raises(formwork.ray.EngineError, match="unexpected argument '--no-such-flag'"):
        formwork.ray.batch_file(str(source), str(tmp_path / "2"), engine_args=["--no-such-flag"])
