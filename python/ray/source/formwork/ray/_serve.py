"""`serve_app`: the OpenAI API on Ray Serve. A replica owns a `formwork serve` and passes requests on to it."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, AsyncIterator, Callable, Mapping, Sequence

import aiohttp
from ray import serve
from ray.exceptions import RayError
from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy, RequestRouterConfig
from ray.serve.exceptions import RayServeException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from ._cluster import node_name, resources, warn_without_room
from ._engine import EngineError, EngineSpec
from ._lost import error_body, last_events, whole_events
from ._server import Server

_log = logging.getLogger("formwork.ray")

_NOT_PASSED_ON = frozenset(
    ("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade")
    + ("host", "content-length")
)
"""Headers that concern one connection alone (RFC 9110, 7.6.1), and those that the next hop writes by itself."""

_WAITING = "vllm:num_requests_waiting"
_RUNNING = "vllm:num_requests_running"


_MAX_DEATHS = 3
"""Servers of a replica that may end in a row without a whole answer between them; one more ends the replica."""

_NOTICE_S = 1.0
"""Seconds after a broken connection in which a server that has ended is seen to have."""

_BROKEN = (aiohttp.ClientError, OSError, RayError, RayServeException)
"""Errors of an answer whose server, or whose replica, is lost."""

Asked = tuple[str, str, list[tuple[str, str]], bytes]
"""A request as it is passed on: method, path with its query, headers, body."""


@dataclass
class Answer:
    """An answer of which the first piece is there, so nothing can be lost before it."""

    path: str
    """What was asked for, with its query: by it errors have their form."""
    status: int
    headers: dict[str, str]
    first: bytes
    """All of the body where `rest` is `None`."""
    rest: AsyncIterator[bytes] | None
    """A stream's other pieces."""
    close: Callable[[], object]
    """Ends the connection, or the call of another replica, and with it the engine's work."""
    server: Server | None
    """Whose answer it is; `None` for another replica's."""


class FormworkReplica:
    """A replica of Ray Serve's: it owns a `Server`, hands requests and streams through, and tells how many wait.

    A server that has ended is started again here. Meanwhile requests of which nothing was answered yet go to another
    replica, or to the new server if that is there first: each is sent twice at most, so that one which ends servers
    ends two of them.
    """

    def __init__(
        self, spec: EngineSpec, max_num_seqs: int, drain_s: float, start_s: float, api_key: str | None = None
    ) -> None:
        self._key = api_key or os.environ.get("FORMWORK_API_KEY")
        self._session: aiohttp.ClientSession | None = None
        self._server: Server | None = None
        self._new_server = partial(Server, spec, max_num_seqs, drain_s, start_s, api_key)
        self._revival: asyncio.Task[None] | None = None
        self._deaths = 0
        self._server = self._new_server()

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
        asked = (request.method, path + ("?" + query if query else ""), headers, await request.body())
        server = self._server
        try:
            answer = await self._answer(asked)
        except (*_BROKEN, EngineError) as error:
            return JSONResponse(error_body(asked[1], await _gone(error, server)), 503, {"Retry-After": "1"})
        if answer.rest is None:
            return Response(answer.first, answer.status, answer.headers)
        return StreamingResponse(self._pieces(answer), answer.status, answer.headers)

    async def relay(self, *asked: Any) -> AsyncIterator[Any]:
        """For another replica whose server has ended: an answer's status, headers and whether it is a stream, then
        its pieces."""
        answer = await self._open(asked)
        yield answer.status, answer.headers, answer.rest is not None
        async for piece in self._pieces(answer):
            yield piece

    async def _answer(self, asked: Asked) -> Answer:
        try:
            return await self._open(asked)
        except (aiohttp.ClientError, OSError):
            if await _end_of(self._server) is None:
                # The server closed a connection that it had kept open, say.
                return await self._open(asked)
        revived, relayed = asyncio.ensure_future(self._revive()), asyncio.ensure_future(self._open_elsewhere(asked))
        try:
            await asyncio.wait((revived, relayed), return_when=asyncio.FIRST_COMPLETED)
            is_relayed = relayed.done() and relayed.exception() is None
            if not is_relayed:
                try:
                    await revived
                except EngineError:
                    is_relayed = True
            return await relayed if is_relayed else await self._open(asked)
        finally:
            revived.cancel()
            relayed.cancel()

    async def _open(self, asked: Asked) -> Answer:
        """Asks the server, and waits for the first piece of its answer."""
        method, url, headers, body = asked
        server = self._server
        answer = await self._client().request(method, url, headers=headers, data=body)
        try:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _NOT_PASSED_ON}
            if answer.content_type != "text/event-stream":
                whole = await answer.read()
                self._deaths = 0
                return Answer(url, answer.status, kept, whole, None, answer.release, server)
            pieces = whole_events(answer.content.iter_any())
            return Answer(url, answer.status, kept, await anext(pieces, b""), pieces, answer.close, server)
        except BaseException:
            answer.close()
            raise

    async def _open_elsewhere(self, asked: Asked) -> Answer:
        """The same of another replica, which Serve chooses (`OthersRouter`); waits while there is none."""
        context = serve.get_replica_context()
        handle = serve.get_deployment_handle(context.deployment, context.app_name)
        pieces = handle.options(method_name="relay", stream=True).remote(*asked)
        try:
            status, headers, is_stream = await anext(pieces)
            first = await anext(pieces, b"")
        except BaseException:
            pieces.cancel()
            raise
        return Answer(asked[1], status, headers, first, pieces if is_stream else None, pieces.cancel, None)

    async def _pieces(self, answer: Answer) -> AsyncIterator[bytes]:
        """An answer's bytes. Where the server is lost, a stream ends as its route's own errors do (`last_events`).

        A client that leaves ends this generator, and with it the connection and the engine's work.
        """
        piece = answer.first
        try:
            yield piece
            if answer.rest is not None:
                async for piece in answer.rest:
                    yield piece
            if answer.server is self._server:
                self._deaths = 0
        except _BROKEN as error:
            request_id = answer.headers.get("request-id", "")
            yield last_events(answer.path, await _gone(error, answer.server), request_id, piece)
        finally:
            answer.close()

    async def _revive(self) -> None:
        """Starts a new server where the last one has ended, once for all who ask. Raises `EngineError`."""
        assert self._server is not None
        if self._server.ended is not None and self._revival is None:
            self._revival = asyncio.create_task(self._start_again(self._server))
        if self._revival is not None:
            await asyncio.shield(self._revival)

    async def _start_again(self, lost: Server) -> None:
        self._deaths += 1
        if self._deaths > _MAX_DEATHS:
            raise EngineError(f"node {node_name()}: {self._deaths} servers ended in a row, the last: {lost.ended}")
        _log.warning("node %s: the server has ended and is started again: %s", node_name(), lost.ended)
        await asyncio.to_thread(lost.stop)
        self._server = await asyncio.to_thread(self._new_server)
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        # A failure stays, and check_health tells of it.
        self._revival = None

    async def check_health(self) -> None:
        """Called by Serve, which replaces a replica that raises: where no server could be started again, or the one
        there is isn't healthy."""
        assert self._server is not None
        if self._revival is not None:
            if self._revival.done():
                await self._revival
            return
        if self._server.ended is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._revive(), _NOTICE_S)
            return
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


async def _end_of(server: Server | None) -> str | None:
    """What a server last said if it has ended, or does within `_NOTICE_S`: its connections break a little before."""
    patience = time.monotonic() + _NOTICE_S
    while server is not None and server.ended is None and time.monotonic() < patience:
        await asyncio.sleep(0.01)
    return None if server is None else server.ended


async def _gone(error: Exception, server: Server | None) -> str:
    """The message for a lost answer: which process ended and how, or what broke. Its log isn't the client's."""
    what = (await _end_of(server) or f"{type(error).__name__}: {error}").partition(": ")[0]
    return f"the engine behind this answer is gone ({what}): send the request again"


def _split_key(engine_args: Sequence[str]) -> tuple[list[str], str | None]:
    """The flags without `--api-key`, and its key. Raises `ValueError` where there is more than one key, or none."""
    rest: list[str] = []
    keys: list[str] = []
    flags = iter(engine_args)
    for flag in flags:
        if flag == "--api-key":
            keys.append(next(flags, ""))
        elif flag.startswith("--api-key="):
            keys.append(flag.partition("=")[2])
        else:
            rest.append(flag)
    if "" in keys:
        raise ValueError("engine_args has '--api-key' without a key")
    if len(keys) > 1:
        raise ValueError(
            f"engine_args has '--api-key' {len(keys)} times: engines get one, in their environment; "
            "several stand in a file on each node, '--api-keys'"
        )
    return rest, keys[0] if keys else None


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

    - `model`, `num_cpus`, `num_gpus`, `engine_args`: as of `batch`; each replica owns an engine. A key of `--api-key`
      gets to the engines in their environment, not on a command line.
    - `max_num_seqs`: requests that an engine runs at the same time; others wait in it.
    - `min_replicas` to `max_replicas` replicas: one more for each `waiting_per_replica` requests that wait in all of
      them together for `upscale_delay_s` seconds; as many as those that run need once none waited for
      `downscale_delay_s`.
    - `drain_s`: a replica that is to go gets no new requests, and ends when those that it has are over or so many
      seconds later.
    - `start_s`: seconds that an engine may take until it is ready.
    - `max_ongoing_requests`: of a replica, running and waiting; beyond them Serve's proxy keeps requests.
    - `ray_actor_options`: for the replicas, such as `{"resources": {"has_model": 0.01}}`.

    Where Ray is connected and the cluster has no room for `min_replicas`, that is logged at once: `serve.run` waits for
    all of them, while those that run serve.

    Raises `TypeError` or `ValueError`, which name the argument. `serve.run` fails with an `EngineError` in its message
    where a node has no such model or executable.
    """
    spec = EngineSpec.of(model, engine_args, num_cpus)
    flags, api_key = _split_key(spec.engine_args)
    spec = replace(spec, engine_args=tuple(flags))
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
    warn_without_room("serve_app", min_replicas, resources(num_cpus, num_gpus, ray_actor_options))
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
        request_router_config=RequestRouterConfig(request_router_class="formwork.ray._router.OthersRouter"),
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
    return deployment.bind(spec, max_num_seqs, drain_s, start_s, api_key)
