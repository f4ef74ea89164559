"""A replica of `serve_app` by itself, without Serve: what it does with its server, its sockets, its settings."""

import asyncio
import json
import os
import pathlib
import socket
import time
from types import SimpleNamespace

import pytest

import formwork.ray
from formwork.ray._engine import EngineSpec
from formwork.ray._serve import FormworkReplica, ScaleOnWaiting, _split_key
from formwork.ray._server import remove_stale_sockets


class Replica(FormworkReplica):
    def __del__(self):
        """Serve calls the real one, and waits for it."""


ENDS = {
    "/v1/messages": b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "the engine',
    "/v1/responses": b'event: error\ndata: {"type": "error", "sequence_number": ',
    "/v1/chat/completions": b'data: {"error": {"message": "the engine behind this answer is gone (formwork ended with',
}


@pytest.mark.parametrize("path", ENDS)
def test_a_stream_ends_in_its_route_s_error_where_its_server_is_killed(executables, path):
    """A replica by itself, without Serve."""
    fields = {"model": "formwork-builtin", "stream": True, "ignore_eos": True}
    if path == "/v1/responses":
        fields |= {"input": "x", "max_output_tokens": 1900}
    else:
        fields |= {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1900}
    if path == "/v1/messages":
        del fields["ignore_eos"]
        schema = {"type": "array", "items": {"type": "integer"}, "minItems": 700}
        fields["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    asked = ("POST", path + "?beta=true", [("content-type", "application/json")], json.dumps(fields).encode())

    async def check():
        replica = Replica(EngineSpec(model=None), 8, 1, 60)
        try:
            answer = await replica._answer(asked)
            assert answer.status == 200, answer.first
            replica._server._process._popen.kill()
            pieces = [piece async for piece in replica._pieces(answer)]
        finally:
            await FormworkReplica.__del__(replica)
        assert all(piece.endswith(b"\n\n") for piece in pieces)
        assert pieces[-1].startswith(ENDS[path]) and b"exit code -9" in pieces[-1], pieces[-1]
        assert pieces[-1].endswith(b"data: [DONE]\n\n") == (path == "/v1/chat/completions")

    asyncio.run(check())


def test_a_replica_whose_servers_end_again_and_again_is_ill(monkeypatch):
    """Serve replaces it then. Three may end in a row, and one that can't be started again is enough."""
    started = []

    class DeadServer:
        socket, ended = "/nowhere", "formwork ended with exit code -9: its log"

        def __init__(self, *_):
            started.append(self)
            if can_start is False and len(started) > 1:
                raise formwork.ray.EngineError("node x: no model")

        def stop(self):
            pass

    monkeypatch.setattr("formwork.ray._serve.Server", DeadServer)

    async def healthy_checks():
        started.clear()
        replica = Replica(EngineSpec(model=None), 1, 1, 1)
        for check in range(10):
            try:
                await replica.check_health()
            except formwork.ray.EngineError as error:
                with pytest.raises(formwork.ray.EngineError):
                    await replica.check_health()
                return check, str(error)

    can_start = True
    checks, message = asyncio.run(healthy_checks())
    assert checks == 3 and len(started) == 4
    assert "4 servers ended in a row, the last: formwork ended with exit code -9" in message
    can_start = False
    assert asyncio.run(healthy_checks()) == (0, "node x: no model")


def test_sockets_of_servers_that_are_gone_are_removed():
    def bound(name, age, listens=False):
        path = f"/tmp/formwork-ray-test-{name}-{os.getpid()}.sock"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        if listens:
            listener.listen()
        else:
            listener.close()
        os.utime(path, (time.time() - age,) * 2)
        return path, listener

    made = {"stale": bound("stale", 3600), "young": bound("young", 0), "live": bound("live", 3600, listens=True)}
    try:
        remove_stale_sockets()
        assert {name for name, (path, _) in made.items() if os.path.exists(path)} == {"young", "live"}
    finally:
        for path, listener in made.values():
            listener.close()
            pathlib.Path(path).unlink(missing_ok=True)


def test_one_key_is_taken_out_of_the_flags():
    assert _split_key(["--max-model-len", "8"]) == (["--max-model-len", "8"], None)
    assert _split_key(["--x", "1", "--api-key", "a", "--api-keys", "f"]) == (["--x", "1", "--api-keys", "f"], "a")
    assert _split_key(["--api-key=a=", "--x"]) == (["--x"], "a=")


@pytest.mark.parametrize(
    ("waiting", "running", "current", "target", "wanted"),
    [
        ([0, 0], [0, 0], 2, 2, 1),
        ([0, 0], [4, 5], 2, 2, 2),
        ([0, 0], [4, 4], 2, 2, 1),
        ([0, 0], [16, 16], 2, 2, 2),
        ([1, 0], [8, 8], 2, 2, 3),
        ([5, 6], [8, 8], 2, 2, 4),
        ([5, 6], [8, 8], 2, 5, 5),
        ([], [], 0, 1, 1),
    ],
)
def test_how_many_replicas_are_wanted(waiting, running, current, target, wanted):
    metrics = {"waiting": dict(enumerate(waiting)), "running": dict(enumerate(running))}
    context = SimpleNamespace(aggregated_metrics=metrics, current_num_replicas=current, target_num_replicas=target)
    assert ScaleOnWaiting(max_num_seqs=8, waiting_per_replica=10)(context) == (wanted, {})
