"""`batch_file`: an OpenAI batch file in, its results out, by the machines of a cluster."""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Callable, Iterator, Mapping, Sequence

import ray

from ._cluster import resources, warn_without_room
from ._engine import BatchEngine, EngineError, EngineSpec

_log = logging.getLogger("formwork.ray")

_MAX_TASK_BYTES = 8 << 20
"""Bytes of lines after which a task takes no further one."""

_TASKS_PER_ENGINE = 2
"""Tasks that an actor has at the same time: while one ends, the next keeps its engine busy."""

_MAX_DEATHS = 10
"""Actors that may die in a row without a result between them; one more ends the run."""

_PATIENCE_S = 10.0
"""Seconds without any event after which `batch_file` looks whether an engine works at all, and says so if none does."""

_RESULT_START = b'{"id":"batch_req_'
"""What each result begins with; `formwork-batch` compares what a kill left with it, too."""

_BAD_LINE_CODES = ("line_too_long", "invalid_json", "invalid_line")
"""Codes of the results of lines whose `custom_id` can't be read."""


@dataclass
class FileSummary:
    """What a run of `batch_file` did."""

    lines: int = 0
    """Results in the output, those of runs before `resume` included."""
    resumed: int = 0
    """Of these, there already when it began."""
    failed: int = 0
    """Results that hold an error."""
    first_error: str | None = None
    """The message of the first of these."""
    restarts: int = 0
    """Actors that died and were replaced."""


@dataclass
class _Task:
    index: int
    lines: list[tuple[int, bytes]] = field(default_factory=list)


@dataclass
class _Done:
    """The results of a task's lines, in order, and what of them the driver wants to know."""

    results: bytes
    failed: int
    first_error: str | None
    models: list[str]


class FormworkBatch:
    """An actor: one engine, several tasks at a time."""

    def __init__(self, spec: EngineSpec) -> None:
        self._engine = BatchEngine(spec)

    async def has_started(self) -> None:
        """Returns once the constructor has: the actor has its place in the cluster, and its engine."""

    async def run(self, lines: list[tuple[int, bytes]]) -> _Done:
        """Answers lines with their numbers in the file."""
        results = await self._engine.answer(lines)
        done = _Done(b"".join(results), 0, None, [])
        for result in results:
            model, error, _ = _read_result(json.loads(result))
            if model is not None and model not in done.models:
                done.models.append(model)
            if error is not None:
                done.failed += 1
                done.first_error = done.first_error or error
        return done


def batch_file(
    input_path: str,
    output_path: str,
    *,
    model: str | None = None,
    engines: int = 1,
    num_cpus: int = 1,
    num_gpus: float = 0,
    engine_args: Sequence[str] = (),
    seed: int = 0,
    lines_per_task: int = 256,
    resume: bool = False,
    overwrite: bool = False,
    ray_remote_args: Mapping[str, Any] | None = None,
    on_progress: Callable[[FileSummary], None] | None = None,
) -> FileSummary:
    """Answers a file in the OpenAI batch format (`docs/batch.md`) with `engines` actors of the cluster.

    Both files are the driver's; the nodes need the model and the executables alone. The output is the one that
    `formwork-batch -i input_path -o output_path --seed seed` would have written on one machine, but for times: the
    order is that of the input, a line's number stands in its error and decides its seed. It grows by whole results,
    in order, so a run that ends early leaves complete lines and at most one that isn't. With `resume` the complete
    ones are compared with the input by number and `custom_id`, and kept, whichever of the two programs wrote them, also
    where a `body` has changed; the rest is answered.

    An actor that is lost with its node is replaced, and what it had is answered by others meanwhile: no line is
    lost, and none is there twice. Where the cluster has no room for all `engines`, that is logged, and those that
    start answer everything. Memory holds 4 tasks for each engine: `lines_per_task` lines each, fewer where
    these have more than 8 MiB. `on_progress` is called with the summary so far whenever results were written.

    Raises `ValueError` for a wrong argument, an output that is the input, exists (without `resume` or
    `overwrite`), is being written by another run, or answers another input or model; `OSError` for a file that
    can't be read or written; `EngineError` for a node without the model, or engines that die again and again.
    """
    if engines < 1 or lines_per_task < 1:
        raise ValueError(f"engines is {engines!r} and lines_per_task {lines_per_task!r}: both must be 1 at least")
    if resume and overwrite:
        raise ValueError("resume and overwrite exclude each other: one keeps the results, the other doesn't")
    if not ray.is_initialized():
        ray.init()
    spec = EngineSpec.of(model, engine_args, num_cpus)
    spec = replace(spec, engine_args=(*spec.engine_args, "--seed", str(int(seed))))
    with open(input_path, "rb") as source, _open_output(input_path, output_path, resume, overwrite) as target:
        summary, number, written_model = FileSummary(), 0, None
        if resume:
            number, written_model = _resume(source, target, output_path, summary)
        options = {**dict(ray_remote_args or {}), "num_cpus": num_cpus, "num_gpus": num_gpus, "max_restarts": 0}
        actor = ray.remote(**options)(FormworkBatch)
        asked = resources(num_cpus, num_gpus, ray_remote_args)
        pool = _Pool(lambda: actor.remote(spec), engines, lambda: warn_without_room("batch_file", engines, asked))
        try:
            for done in pool.run(_tasks(source, number, lines_per_task)):
                for name in done.models:
                    if written_model is not None and name != written_model:
                        raise ValueError(
                            f"{output_path!r} has results of the model {written_model!r}, and this run's is {name!r}"
                        )
                    written_model = name
                target.write(done.results)
                target.flush()
                summary.lines += done.results.count(b"\n")
                summary.failed += done.failed
                summary.first_error = summary.first_error or done.first_error
                if on_progress is not None:
                    on_progress(summary)
        except EngineError as error:
            raise EngineError(f"{error} ({summary.lines} results are complete: go on with resume=True)") from None
        finally:
            summary.restarts = pool.deaths
            pool.stop()
        return summary


class _Pool:
    """Actors, the tasks that each has, and the results in the tasks' order."""

    def __init__(self, start: Any, size: int, warn: Callable[[], str | None]) -> None:
        """`start` makes an actor; `warn` logs where the cluster has no room for all, and returns what it logged."""
        self._start = start
        self._size = size
        self._warn = warn
        self._actors: dict[Any, int] = {}
        """Actors whose engine was started, and how many tasks each has."""
        self._starting: dict[Any, Any] = {}
        """The others, by what is ready once their engine is. They may wait for room, so they get no tasks."""
        self._deaths_in_a_row = 0
        self.deaths = 0
        self._warn()
        for _ in range(size):
            self._start_one()

    def run(self, tasks: Iterator[_Task]) -> Iterator[_Done]:
        """Yields results in the order of `tasks`, of which it takes 4 for each actor beyond the last yielded."""
        ahead = 2 * _TASKS_PER_ENGINE * self._size - 1
        upcoming = next(tasks, None)
        again: deque[_Task] = deque()
        running: dict[Any, tuple[_Task, Any]] = {}
        done: dict[int, _Done] = {}
        next_index = 0
        while upcoming is not None or again or running:
            while (actor := self._free_actor()) is not None:
                if again:
                    task = again.popleft()
                elif upcoming is not None and upcoming.index - next_index < ahead:
                    task, upcoming = upcoming, next(tasks, None)
                else:
                    break
                running[actor.run.remote(task.lines)] = (task, actor)
                self._actors[actor] += 1
            ready, _ = ray.wait([*running, *self._starting], num_returns=1, timeout=_PATIENCE_S)
            if not ready:
                self._tell_who_is_missing()
                continue
            if ready[0] in self._starting:
                self._has_started(ready[0])
                continue
            task, actor = running.pop(ready[0])
            if actor in self._actors:
                self._actors[actor] -= 1
            try:
                done[task.index] = ray.get(ready[0])
                self._deaths_in_a_row = 0
            except ray.exceptions.RayTaskError as error:
                cause = error.cause
                raise (cause if isinstance(cause, EngineError) else EngineError(str(error))) from None
            except ray.exceptions.RayError as error:
                # Its node, its process or the results' only copy is gone. Tasks of a lower index go first,
                # since their results are waited for.
                again = deque(sorted([*again, task], key=lambda task: task.index))
                if actor in self._actors:
                    del self._actors[actor]
                    self._replace(actor, error)
            while next_index in done:
                yield done.pop(next_index)
                next_index += 1

    def _free_actor(self) -> Any | None:
        """The started actor with the fewest tasks, unless all have as many as they may or none has started."""
        actor = min(self._actors, key=lambda actor: self._actors[actor], default=None)
        return actor if actor is not None and self._actors[actor] < _TASKS_PER_ENGINE else None

    def _start_one(self) -> None:
        actor = self._start()
        self._starting[actor.has_started.remote()] = actor

    def _has_started(self, reference: Any) -> None:
        actor = self._starting.pop(reference)
        try:
            ray.get(reference)
            self._actors[actor] = 0
        except ray.exceptions.RayError as error:
            if getattr(error, "actor_init_failed", False):
                raise EngineError(f"an actor can't start its engine: {error}") from None
            self._replace(actor, error)

    def _replace(self, actor: Any, error: Exception) -> None:
        _log.warning("an actor died and is replaced: %s", error)
        ray.kill(actor)
        self.deaths += 1
        self._deaths_in_a_row += 1
        if self._deaths_in_a_row > _MAX_DEATHS:
            raise EngineError(f"{self._deaths_in_a_row} actors died in a row, the last: {error}")
        self._start_one()

    def _tell_who_is_missing(self) -> None:
        """Called where nothing happened for `_PATIENCE_S`: says that nobody works, if so, and why as far as it's known."""
        if not self._actors and self._warn() is None:
            free = {name: amount for name, amount in ray.available_resources().items() if ":" not in name}
            _log.warning("none of %d engines has started yet; free in the cluster: %s", self._size, free)

    def stop(self) -> None:
        for actor in [*self._actors, *self._starting.values()]:
            ray.kill(actor)


def _tasks(source: BinaryIO, number: int, lines_per_task: int) -> Iterator[_Task]:
    """Cuts the rest of the input into tasks; `number` lines of it have been read. Blank lines count and are left out."""
    task = _Task(0)
    size = 0
    for line in source:
        number += 1
        if not line.strip():
            continue
        task.lines.append((number, line))
        size += len(line)
        if len(task.lines) >= lines_per_task or size >= _MAX_TASK_BYTES:
            yield task
            task, size = _Task(task.index + 1), 0
    if task.lines:
        yield task


def _open_output(input_path: str, output_path: str, resume: bool, overwrite: bool) -> BinaryIO:
    """The output, locked as `formwork-batch` locks it, and empty unless `resume`."""
    if os.path.exists(output_path) and os.path.samefile(input_path, output_path):
        raise ValueError(f"output_path {output_path!r} is the input: give another file")
    target = open(output_path, "r+b" if os.path.exists(output_path) else "w+b")
    try:
        try:
            fcntl.flock(target, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"output_path {output_path!r} is being written by another run") from None
        except OSError:
            # Some file systems have no locks.
            pass
        if overwrite:
            target.truncate(0)
        elif not resume and os.path.getsize(output_path) > 0:
            raise ValueError(
                f"output_path {output_path!r} has something in it: go on with resume=True, or replace it with overwrite=True"
            )
    except BaseException:
        target.close()
        raise
    return target


def _read_result(result: Any) -> tuple[str | None, str | None, str | None]:
    """The model of a result, its error's message, and the code of a line that isn't a request."""
    error = result.get("error")
    response = result.get("response") or {}
    body = response.get("body") or {}
    code = error.get("code") if error else None
    if not error and response.get("status_code") != 200:
        error = body.get("error") or {}
    return body.get("model"), str(error.get("message", "an error")) if error is not None else None, code


def _resume(source: BinaryIO, target: BinaryIO, output_path: str, summary: FileSummary) -> tuple[int, str | None]:
    """Compares the complete results with the input's beginning and cuts off what follows them.

    Leaves `source` behind the last line that has a result and `target` at its end. Returns how many lines of the
    input were read, and the results' model. Raises `ValueError` for results of another input.
    """
    number, length, model = 0, 0, None
    for result_line in target:
        count = summary.lines + 1
        if not result_line.endswith(b"\n"):
            written = result_line.rstrip(b"\0")
            if not (written.startswith(_RESULT_START) or _RESULT_START.startswith(written)):
                raise ValueError(f"{output_path!r} line {count} is not the beginning of a result: {written[:80]!r}")
            break
        line = b""
        while not line.strip():
            line = source.readline()
            number += 1
            if not line:
                raise ValueError(f"{output_path!r} line {count} has no request: the input ends before it")
        try:
            result = json.loads(result_line)
            result_id, custom_id = result["id"], result["custom_id"]
            result_model, error, code = _read_result(result)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError(f"{output_path!r} line {count} is not a result: {result_line[:80]!r}") from None
        if result_id != f"batch_req_{number}" or not _is_id_of(custom_id, line, code):
            raise ValueError(
                f"{output_path!r} line {count} is {result_id!r} with custom_id {custom_id!r}, and the input has "
                f"line {number} there: {line[:80]!r}"
            )
        if model is not None and result_model is not None and model != result_model:
            raise ValueError(
                f"{output_path!r} line {count} is of the model {result_model!r}, and those before it are of {model!r}"
            )
        model = model or result_model
        if error is not None:
            summary.failed += 1
            summary.first_error = summary.first_error or error
        summary.lines += 1
        length += len(result_line)
    summary.resumed = summary.lines
    target.truncate(length)
    target.seek(length)
    return number, model


def _is_id_of(custom_id: str | None, line: bytes, code: str | None) -> bool:
    """True if a result with this `custom_id` may be that of an input line: the same, or none since it can't be read."""
    if custom_id is None:
        return code in _BAD_LINE_CODES
    try:
        return bool(json.loads(line.removeprefix(b"\xef\xbb\xbf"))["custom_id"] == custom_id)
    except (ValueError, KeyError, TypeError):
        return False
