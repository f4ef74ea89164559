"""`serve_app` on Ray Serve, with clients over HTTP."""

import asyncio
import glob
import json
import os
import pathlib
import signal
import time

import aiohttp
import anthropic
import openai
import pytest
import ray
from conftest import SCHEMA, pids_of
from ray import serve

import formwork.ray
from formwork.ray._process import executable

URL = "http://127.0.0.1:8000"


@pytest.fixture
def app(cluster):
    def run(**arguments):
        serve.run(formwork.ray.serve_app(**arguments), name="app", route_prefix="/")

    yield run
    serve.shutdown()


def replicas():
    """The replicas' actors, by name."""
    named = ray.util.list_named_actors(all_namespaces=True)
    return {actor["name"]: actor["namespace"] for actor in named if actor["name"].startswith("SERVE_REPLICA")}


async def stream(session, seed, began=None, **fields):
    """How a stream ends, and its text: "done", "refused" or "cut", the last where the connection ended before its answer."""
    body = {"messages": [{"role": "user", "content": f"Write about {seed}."}], "stream": True, "seed": seed, **fields}
    text, is_done = "", False
    try:
        async with session.post(URL + "/v1/chat/completions", json=body) as answer:
            if answer.status != 200:
                return "refused", await answer.text()
            async for line in answer.content:
                if line.startswith(b"data: [DONE]"):
                    is_done = True
                elif line.startswith(b"data: "):
                    piece = json.loads(line[6:])
                    if "error" in piece:
                        return "refused", json.dumps(piece)
                    text += "".join(choice["delta"].get("content") or "" for choice in piece["choices"])
                    if began is not None:
                        began.set()
    except aiohttp.ClientError as error:
        return "cut", f"{type(error).__name__}: {error}"
    return ("done", text) if is_done else ("lost", text)


async def whole(session, seed, **fields):
    """The same of a request that isn't a stream."""
    body = {"messages": [{"role": "user", "content": f"Write about {seed}."}], "seed": seed, **fields}
    try:
        async with session.post(URL + "/v1/chat/completions", json=body) as answer:
            if answer.status != 200:
                return "refused", f"{answer.status} {await answer.text()}"
            return "done", (await answer.json())["choices"][0]["message"]["content"]
    except aiohttp.ClientError as error:
        return "cut", f"{type(error).__name__}: {error}"


def client():
    """A session with a key, which servers that ask for none ignore."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=300),
        headers={"Authorization": "Bearer secret"},
    )


LONG = {"max_tokens": 400, "min_tokens": 300, "temperature": 1.0, "ignore_eos": True}


def sockets():
    return set(glob.glob("/tmp/formwork-ray-*.sock"))


def test_requests_pass_through_as_they_are(app):
    before = sockets()
    app()

    async def check():
        async with client() as session:
            body = {
                "messages": [{"role": "user", "content": "Hello"}],
                "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
            }
            async with session.post(URL + "/v1/chat/completions", json=body) as answer:
                assert answer.status == 200
                assert set(json.loads((await answer.json())["choices"][0]["message"]["content"])) == {"n", "w"}
            async with session.post(URL + "/v1/chat/completions", json={**body, "max_token": 3}) as answer:
                assert answer.status == 400 and (await answer.json())["error"]["param"] == "max_token"
            async with session.get(URL + "/v1/models") as answer:
                assert (await answer.json())["data"][0]["id"] == "formwork-builtin"
            async with session.get(URL + "/nowhere?a=b") as answer:
                assert answer.status == 404
            async with session.get(URL + "/metrics") as answer:
                assert "vllm:num_requests_waiting" in await answer.text()
            assert (await stream(session, 1, **LONG))[0] == "done"

    asyncio.run(check())
    serve.shutdown()
    assert sockets() <= before


@pytest.mark.slow
def test_a_killed_replica_ends_each_of_its_requests_once(app, second_node):
    """64 streams and 16 others on two replicas, one killed: all end, in their answer or in one error, and the app goes on."""
    app(min_replicas=2, max_replicas=2)

    async def check():
        async with client() as session:
            expected = [await stream(session, seed, **LONG) for seed in (0, 63)]
            began = [asyncio.Event() for _ in range(64)]
            running = [asyncio.create_task(stream(session, seed, began[seed], **LONG)) for seed in range(64)]
            others = [asyncio.create_task(whole(session, seed, **LONG)) for seed in range(16)]
            # OpenAI's package asks again by itself, as docs/ray.md says.
            gpt = openai.AsyncOpenAI(api_key="x", base_url=URL + "/v1")
            fields = {**LONG, "model": "formwork-builtin", "messages": [{"role": "user", "content": "Write about 0."}], "seed": 0}
            extra = {name: fields.pop(name) for name in ("min_tokens", "ignore_eos")}
            asked = [asyncio.create_task(gpt.chat.completions.create(**fields, extra_body=extra)) for _ in range(4)]
            await asyncio.gather(*(event.wait() for event in began))
            name, namespace = next(iter(replicas().items()))
            ray.kill(ray.get_actor(name, namespace), no_restart=True)
            ends = await asyncio.gather(*running)
            kinds = [kind for kind, _ in ends]
            assert set(kinds) <= {"done", "cut", "refused"}, kinds
            # How Serve shares them out is its own matter, but none of the replicas has all.
            assert 0 < kinds.count("done") < len(kinds), kinds
            for seed, answer in ((0, expected[0]), (63, expected[1])):
                assert ends[seed] == answer or ends[seed][0] != "done"
            for kind, text in await asyncio.gather(*others):
                assert kind == "done" or text.startswith(("500 ", "503 ")), (kind, text)
            assert {answer.choices[0].message.content for answer in await asyncio.gather(*asked)} == {expected[0][1]}
            # What comes next is served by the replica that is left.
            assert await stream(session, 0, **LONG) == expected[0]

    asyncio.run(check())


def server_pids():
    """Processes of `formwork serve` that were started from the folder under test."""
    return pids_of(executable("formwork"))


def test_requests_outlive_the_server_of_their_replica(app):
    """What has no answer yet is asked again, and a broken stream says what happened. The replica stays."""
    app(min_replicas=2, max_replicas=2)
    before = set(replicas())

    async def check():
        async with client() as session:
            expected = [await whole(session, seed, **LONG) for seed in range(2)]
            began = [asyncio.Event() for _ in range(16)]
            running = [asyncio.create_task(stream(session, seed, began[seed], **LONG)) for seed in range(16)]
            others = [asyncio.create_task(whole(session, seed % 2, **LONG)) for seed in range(16)]
            await asyncio.gather(*(event.wait() for event in began))
            os.kill(next(iter(server_pids())), signal.SIGKILL)
            for kind, text in await asyncio.gather(*running):
                if kind != "done":
                    error = json.loads(text)["error"]
                    assert (kind, error["code"], error["type"]) == ("refused", 503, "service_unavailable")
                    assert "is gone (formwork ended with exit code -9): send the request again" in error["message"]
            assert await asyncio.gather(*others) == expected * 8
            assert await asyncio.gather(*(whole(session, seed % 2, **LONG) for seed in range(16))) == expected * 8

    asyncio.run(check())
    assert set(replicas()) == before
    assert len(list(server_pids())) == 2


def test_official_clients_raise_where_the_server_of_their_stream_is_killed(app):
    """Each by its own form of an error, so none takes a part for the whole."""
    app()
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}, "minItems": 700}}}
    schema |= {"required": ["a"], "additionalProperties": False}
    messages, form = [{"role": "user", "content": "x"}], {"type": "json_schema", "name": "a", "schema": schema}
    options = {"api_key": "x", "max_retries": 0}
    claude, gpt = anthropic.Anthropic(base_url=URL, **options), openai.OpenAI(base_url=URL + "/v1", **options)
    calls = [
        lambda: claude.messages.create(
            model="formwork-builtin", max_tokens=1900, messages=messages, stream=True,
            extra_body={"output_config": {"format": {"type": "json_schema", "schema": schema}}},
        ),
        lambda: gpt.responses.create(
            model="formwork-builtin", max_output_tokens=1900, input="x", stream=True, text={"format": form},
        ),
        lambda: gpt.chat.completions.create(
            model="formwork-builtin", max_tokens=1900, messages=messages, stream=True,
            response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}},
        ),
    ]
    for call in calls:
        with pytest.raises((anthropic.APIError, openai.APIError), match="ended with exit code -9.*send the request again"):
            with call() as stream:
                for number, _ in enumerate(stream):
                    if number == 5:
                        os.kill(next(iter(server_pids())), signal.SIGKILL)


@pytest.mark.slow
def test_another_replica_answers_until_the_server_is_back(app, tmp_path, executables):
    """Here it never comes back: its start waits while there is a file."""
    hold, script = tmp_path / "hold", tmp_path / "formwork"
    script.write_text(f"""#!/bin/sh
[ "$1" = serve ] && [ -e {hold} ] && exec sleep 600
exec {os.path.abspath(executable("formwork"))} "$@"
""")
    script.chmod(0o755)
    environment = {"env_vars": {"FORMWORK_BIN": str(tmp_path)}}
    app(min_replicas=2, max_replicas=2, drain_s=1, ray_actor_options={"runtime_env": environment})

    async def check():
        async with client() as session:
            expected = [await stream(session, seed, **LONG) for seed in range(16)]
            hold.touch()
            os.kill(next(iter(server_pids())), signal.SIGKILL)
            assert await asyncio.gather(*(stream(session, seed, **LONG) for seed in range(16))) == expected
            assert (await asyncio.gather(*(whole(session, seed, **LONG) for seed in range(16)))) == expected

    asyncio.run(check())
    assert len(list(server_pids())) == 1


@pytest.mark.slow
def test_a_replica_is_drained_before_it_goes(app, second_node):
    before = sockets()
    app(min_replicas=2, max_replicas=2)

    async def check():
        async with client() as session:
            began = [asyncio.Event() for _ in range(32)]
            running = [asyncio.create_task(stream(session, seed, began[seed], **LONG)) for seed in range(32)]
            await asyncio.gather(*(event.wait() for event in began))
            await asyncio.to_thread(app, min_replicas=1, max_replicas=1)
            assert [kind for kind, _ in await asyncio.gather(*running)] == ["done"] * 32

    asyncio.run(check())
    deadline = time.monotonic() + 60
    while len(replicas()) > 1 and time.monotonic() < deadline:
        time.sleep(0.5)
    assert len(replicas()) == 1
    # The engine of the other ended in order, too.
    assert len(sockets() - before) == 1


@pytest.mark.slow
def test_a_replica_comes_while_requests_wait(app):
    """Also where the server asks for a key, for its metrics too."""
    app(max_num_seqs=1, waiting_per_replica=8, max_replicas=2, upscale_delay_s=0, engine_args=["--api-key", "secret"])

    async def check():
        async with client() as session:
            running: set = set()
            deadline = time.monotonic() + 90
            while len(replicas()) < 2 and time.monotonic() < deadline:
                running = {task for task in running if not task.done()}
                running |= {asyncio.create_task(stream(session, seed, **LONG)) for seed in range(32 - len(running))}
                await asyncio.sleep(0.5)
            assert len(replicas()) == 2
            assert {kind for kind, _ in await asyncio.gather(*running)} == {"done"}

    asyncio.run(check())


def test_a_key_stands_on_no_command_line(app):
    """Which every user of a node can read."""
    key = "a-key-of-this-test"
    app(engine_args=["--api-key", key])
    lines = b""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            lines += pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            pass
    assert b"formwork-ray-" in lines and key.encode() not in lines

    async def statuses():
        async with aiohttp.ClientSession() as session:
            for headers in ({}, {"Authorization": f"Bearer {key}"}):
                async with session.get(URL + "/v1/models", headers=headers) as answer:
                    yield answer.status

    async def check():
        assert [status async for status in statuses()] == [401, 200]

    asyncio.run(check())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"min_replicas": 0}, "min_replicas is 0"),
        ({"min_replicas": 3, "max_replicas": 2}, "max_replicas is 2 and min_replicas 3"),
        ({"max_num_seqs": 0}, "max_num_seqs is 0"),
        ({"drain_s": -1}, "drain_s is -1"),
        ({"engine_args": ["--port", "1"]}, "engine_args has '--port'"),
        ({"engine_args": ["--api-key", "a", "--api-key=b"]}, "engine_args has '--api-key' 2 times"),
        ({"engine_args": ["--api-key"]}, "engine_args has '--api-key' without a key"),
    ],
)
def test_wrong_arguments_are_named_at_once(arguments, message):
    with pytest.raises(ValueError, match=message):
        formwork.ray.serve_app(**arguments)
