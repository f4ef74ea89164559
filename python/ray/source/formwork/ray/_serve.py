"""`serve_app`: the OpenAI API on Ray Serve. A replica owns a `formwork serve` and passes requests on to it."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import threading
import uuid
from typing import Any, AsyncIterator, Mapping, Sequence

import aiohttp
from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from ._engine import EngineError, EngineSpec, node_name
from ._process import Process

_NOT_PASSED_ON = frozenset(
    ("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade")
    + ("host", "content-length")
)
"""Headers that concern one connection alone (RFC 9110, 7.6.1), and those that the next hop writes by itself."""

_WAITING = "vllm:num_requests_waiting"
_RUNNING = "vllm:num_requests_running"


class Server:
    """A `formwork serve` on a Unix domain socket that only this user can open."""

    def __init__(self, spec: EngineSpec, max_num_seqs: int, drain_s: float, start_s: float) -> None:
        """Checks the node, starts the server and waits until it is ready. Raises `EngineError`."""
        spec.check_node()
        self._drain_s = drain_s
        # A socket's path may have 107 bytes, which a worker's own folder may exceed. The server makes it with
        # mode 600 and removes it when it ends.
        self.socket = f"/tmp/formwork-ray-{uuid.uuid4().hex}.sock"
        self._last_words = ""
        ready = threading.Event()

        def on_end(last_words: str) -> None:
            self._last_words = last_words
            ready.set()

        command = spec.command("formwork")
        # What `serve` prints on its standard output is its address, once requests may come.
        limits = ["--max-num-seqs", str(max_num_seqs), "--shutdown-timeout", str(math.ceil(drain_s))]
        command[1:1] = ["serve", "--uds", self.socket, *limits]
        self._process = Process(command, lambda line: ready.set(), on_end)
        if not ready.wait(start_s):
            self.stop()
            raise EngineError(f"node {node_name()}: formwork serve was not ready after start_s = {start_s} seconds")
        if not self._process.is_alive:
            self.stop()
            raise EngineError(f"node {node_name()}: {self._last_words}")

    @property
    def ended(self) -> str | None:
        """What the server last said, once it has ended."""
        return None if self._process.is_alive else self._last_words

    def stop(self) -> None:
        """Lets requests in flight finish for the drain's seconds, then ends the server."""
        self._process.stop(self._drain_s)


class FormworkReplica:
    """A replica of Ray Serve's: it owns a `Server`, hands requests and streams through, and tells how many wait."""

    def __init__(self, spec: EngineSpec, max_num_seqs: int, drain_s: float, start_s: float) -> None:
        self._key = _key_of(spec.engine_args)
        self._session: aiohttp.ClientSession | None = None
        self._server: Server | None = None
        self._server = Server(spec, max_num_seqs, drain_s, start_s)

    def _client(self) -> aiohttp.ClientSession:
        assert self._server is not None
        if self._session is None:
            self._session = aiohttp.ClientSession(
                "http://formwork",
                connector=aiohttp.UnixConnector(self._server.socket, limit=0),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
            )
        return self._session

    async def __call__(self, request: Request) -> Response:
        """Hands a request to the server, and its answer back as it comes."""
        headers = [(name, value) for name, value in request.headers.items() if name not in _NOT_PASSED_ON]
        path = request.scope["path"].removeprefix(request.scope.get("root_path", "")) or "/"
        query = request.scope["query_string"].decode("latin-1")
        body = await request.body()
        try:
            url = path + ("?" + query if query else "")
            answer = await self._client().request(request.method, url, headers=headers, data=body)
        except (aiohttp.ClientError, OSError) as error:
            return JSONResponse(_gone(error), 503, {"Retry-After": "1"})
        kept = {name: value for name, value in answer.headers.items() if name.lower() not in _NOT_PASSED_ON}
        is_stream = answer.content_type == "text/event-stream"
        if is_stream:
            return StreamingResponse(self._pieces(answer), answer.status, kept)
        try:
            return Response(await answer.read(), answer.status, kept)
        except (aiohttp.ClientError, OSError) as error:
            return JSONResponse(_gone(error), 503, {"Retry-After": "1"})
        finally:
            answer.release()

    async def _pieces(self, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        """A stream's bytes. Where the server is lost, the stream ends as its own errors do: an event, then `[DONE]`.

        A client that leaves ends this generator, and with it the connection and the engine's work.
        """
        try:
            async for piece in answer.content.iter_any():
                yield piece
        except (aiohttp.ClientError, OSError) as error:
            yield f"\n\ndata: {json.dumps(_gone(error))}\n\ndata: [DONE]\n\n".encode()
        finally:
            answer.close()

    async def check_health(self) -> None:
        """Called by Serve, which replaces a replica that raises: where the server ended or is not healthy."""
        assert self._server is not None
        if self._server.ended is not None:
            raise EngineError(f"node {node_name()}: {self._server.ended}")
        async with self._client().get("/health") as answer:
            if answer.status != 200:
                raise EngineError(f"node {node_name()}: /health is {answer.status}: {await answer.text()}")

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Called by Serve: requests that wait and that run in the engine, from its `/metrics`."""
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        async with self._client().get("/metrics", headers=headers) as answer:
            text = await answer.text()
            answer.raise_for_status()
        return {"waiting": _sum_of(text, _WAITING), "running": _sum_of(text, _RUNNING)}

    async def __del__(self) -> None:
        """Called by Serve when requests in flight are over or `drain_s` is."""
        if self._session is not None:
            await self._session.close()
        # Serve calls it for a replica whose engine didn't start as well.
        if self._server is not None:
            await asyncio.to_thread(self._server.stop)


def _gone(error: Exception) -> dict[str, Any]:
    message = f"the engine of this replica is gone ({type(error).__name__}: {error}): send the request again"
    return {"error": {"message": message, "type": "service_unavailable", "param": None, "code": 503}}


def _key_of(engine_args: Sequence[str]) -> str | None:
    """The server's key, where it asks for one: of the flag `--api-key`, else of its variable."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--api-key", default=os.environ.get("FORMWORK_API_KEY"))
    key: str | None = parser.parse_known_args(list(engine_args))[0].api_key
    return key


def _sum_of(metrics: str, name: str) -> float:
    """The sum of a gauge's samples in Prometheus' text: one for each engine core."""
    return sum(float(line.rsplit(" ", 1)[1]) for line in metrics.splitlines() if line.startswith(name + "{"))


class ScaleOnWaiting:
    """How many replicas are wanted: a policy of Serve's, which bounds and delays it by `serve_app`'s other settings."""

    def __init__(self, max_num_seqs: int, waiting_per_replica: int) -> None:
        self._max_num_seqs = max_num_seqs
        self._waiting_per_replica = waiting_per_replica

    def __call__(self, ctx: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        """While requests wait: one more replica for each `waiting_per_replica` of them, rounded up. While none
        waits: as many as those that run need at `max_num_seqs` each, and no more than there are."""
        metrics = ctx.aggregated_metrics or {}
        waiting = sum((metrics.get("waiting") or {}).values())
        running = sum((metrics.get("running") or {}).values())
        if waiting > 0:
            more = math.ceil(waiting / self._waiting_per_replica)
            # Replicas that are still starting stand in the target, so they are not asked for again.
            return max(ctx.target_num_replicas, ctx.current_num_replicas + more), {}
        return min(ctx.target_num_replicas, max(1, math.ceil(running / self._max_num_seqs))), {}


def serve_app(
    *,
    model: str | None = None,
    num_cpus: int = 1,
    num_gpus: float = 0,
    engine_args: Sequence[str] = (),
    max_num_seqs: int = 256,
    min_replicas: int = 1,
    max_replicas: int = 1,
    waiting_per_replica: int = 64,
    upscale_delay_s: float = 10,
    downscale_delay_s: float = 300,
    drain_s: float = 60,
    start_s: float = 600,
    max_ongoing_requests: int = 4096,
    ray_actor_options: Mapping[str, Any] | None = None,
    name: str = "formwork",
) -> serve.Application:
    """An application for `ray.serve.run`: every route of `formwork serve`, streams included.

    - `model`, `num_cpus`, `num_gpus`, `engine_args`: as of `batch`; each replica owns an engine.
    - `max_num_seqs`: requests that an engine runs at the same time; others wait in it.
    - `min_replicas` to `max_replicas` replicas: one more for each `waiting_per_replica` requests that wait in all of
      them together for `upscale_delay_s` seconds; as many as those that run need once none waited for
      `downscale_delay_s`.
    - `drain_s`: a replica that is to go gets no new requests, and ends when those that it has are over or so many
      seconds later.
    - `start_s`: seconds that an engine may take until it is ready.
    - `max_ongoing_requests`: of a replica, running and waiting; beyond them Serve's proxy keeps requests.
    - `ray_actor_options`: for the replicas, such as `{"resources": {"has_model": 0.01}}`.

    Raises `TypeError` or `ValueError`, which name the argument. `serve.run` fails with an `EngineError` in its message
    where a node has no such model or executable.
    """
    spec = EngineSpec.of(model, engine_args, num_cpus)
    for argument, value in (
        ("max_num_seqs", max_num_seqs),
        ("min_replicas", min_replicas),
        ("waiting_per_replica", waiting_per_replica),
        ("max_ongoing_requests", max_ongoing_requests),
    ):
        if value < 1:
            raise ValueError(f"{argument} is {value!r}: it must be 1 at least")
    if max_replicas < min_replicas:
        raise ValueError(f"max_replicas is {max_replicas!r} and min_replicas {min_replicas!r}: give at least as many")
    if drain_s < 0:
        raise ValueError(f"drain_s is {drain_s!r}: it must be 0 seconds at least")
    policy = AutoscalingPolicy(
        policy_function=ScaleOnWaiting,
        policy_kwargs={"max_num_seqs": max_num_seqs, "waiting_per_replica": waiting_per_replica},
    )
    deployment = serve.deployment(
        name=name,
        max_ongoing_requests=max_ongoing_requests,
        graceful_shutdown_timeout_s=drain_s,
        graceful_shutdown_wait_loop_s=0.5,
        health_check_period_s=5,
        autoscaling_config=AutoscalingConfig(
            min_replicas=min_replicas,
            max_replicas=max_replicas,
            # Replicas tell their counts every 10 seconds. The policy's own delays smooth, so few of them do.
            look_back_period_s=15,
            upscale_delay_s=upscale_delay_s,
            downscale_delay_s=downscale_delay_s,
            policy=policy,
        ),
        ray_actor_options={**dict(ray_actor_options or {}), "num_cpus": num_cpus, "num_gpus": num_gpus},
    )(FormworkReplica)
    return deployment.bind(spec, max_num_seqs, drain_s, start_s)
