"""The engine that an actor owns for a batch: `formwork-batch` with a pipe at each end, and what must hold of its node."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Sequence

import ray

from ._cluster import first_of, node_name
from ._model import hub_revision, model_fingerprint
from ._process import EngineError, Process, executable, version

__all__ = ["BatchEngine", "EngineError", "EngineSpec"]

_MAX_DEATHS = 3
"""Engines of an actor that may die in a row without an answer between them; one more ends the job."""

_OWN_FLAGS = ("--model", "--threads", "--seed", "-i", "--input-file", "-o", "--output-file", "--uds", "--host", "--port")
"""Flags that are arguments of this package's functions, or its own business."""

_WRITE_BYTES = 1 << 20
"""Most empty lines that are written at once."""


@dataclass(frozen=True)
class EngineSpec:
    """Which engine is asked for, and by whom. Made on the driver, where it is checked, and sent to the actors."""

    model: str | None
    """A path, a name on the Hugging Face Hub, or `None` for the built-in model."""
    engine_args: tuple[str, ...] = ()
    """Further flags, such as `("--quantization", "q8_0")`."""
    num_threads: int = 1
    asked_by: str = field(default_factory=node_name)
    fingerprint: str | None = None
    """Of the model where it is on the driver as well."""
    version: str | None = None
    """Of Formwork where it is on the driver as well."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Under which the actors of one call compare what they have."""

    @staticmethod
    def of(model: str | None, engine_args: Sequence[str], num_cpus: float) -> EngineSpec:
        """Checks what a caller asked for. Raises `TypeError` or `ValueError`, which name the argument."""
        if model is not None and not isinstance(model, str):
            raise TypeError(f"model must be a path or a name as str, got {type(model).__name__}")
        if isinstance(engine_args, str) or not all(isinstance(flag, str) for flag in engine_args):
            raise TypeError(f"engine_args must be a list of str, got {engine_args!r:.80}")
        for flag in engine_args:
            if flag.split("=")[0] in _OWN_FLAGS:
                raise ValueError(f"engine_args has {flag!r}, which is an argument of its own or set by formwork.ray: leave it out")
        if num_cpus < 1:
            raise ValueError(f"num_cpus is {num_cpus!r}: an engine needs 1 at least")
        # A path is one and the same on all nodes only if it is absolute.
        if model is not None and os.path.exists(model):
            model = os.path.abspath(model)
        try:
            here = version()
        except EngineError:
            here = None
        fingerprint = model_fingerprint(model) if model is not None else None
        return EngineSpec(model, tuple(engine_args), int(num_cpus), node_name(), fingerprint, here)

    def check_node(self) -> None:
        """Compares this node with what was asked for, and with the others that were asked.

        Raises `EngineError`, which names both sides.
        """
        if self.model is not None and os.path.isabs(self.model):
            found = model_fingerprint(self.model)
            if found is None:
                raise EngineError(
                    f"node {node_name()} has no model at {self.model!r}, which {self.asked_by} asked for: "
                    "put it there on every node, or keep engines to nodes that have it with ray_remote_args"
                )
            if self.fingerprint is not None and found != self.fingerprint:
                raise EngineError(
                    f"node {node_name()} has another model at {self.model!r} (fingerprint {found}) than "
                    f"{self.asked_by} ({self.fingerprint}): answers would depend on the node"
                )
            self._compare_with_first(f"the model at {self.model!r} with the fingerprint", found)
        found = version()
        if self.version is not None and found != self.version:
            raise EngineError(
                f"node {node_name()} has {found}, and {self.asked_by}, who asked, has {self.version}: "
                "answers might depend on the node, install the same version on both"
            )
        self._compare_with_first("the version", found)

    def check_loaded(self) -> None:
        """Compares the commit of a model of the Hub, once an engine has loaded it, with the other nodes'.

        Raises `EngineError`, which names both sides.
        """
        if self.model is None or os.path.isabs(self.model):
            return
        commit = hub_revision(self.model)
        if commit is not None:
            self._compare_with_first(f"the model {self.model!r} at the commit", commit)

    def _compare_with_first(self, what: str, found: str) -> None:
        if not ray.is_initialized():
            return
        first, _, first_node = first_of(f"{self.id} {what}", f"{found}\n{node_name()}").partition("\n")
        if first != found:
            raise EngineError(
                f"node {node_name()} has {what} {found}, and node {first_node} has {first}: answers would depend on "
                "the node, let all have the same (of the Hub: name a commit, org/name@COMMIT), and call it anew"
            )

    def command(self, name: str) -> list[str]:
        """The command line of an executable, but for its input and output."""
        model = [] if self.model is None else ["--model", self.model]
        return [executable(name), *model, "--threads", str(self.num_threads), *self.engine_args]


class _Died(Exception):
    """The engine ended before it answered a line."""


class BatchEngine:
    """`formwork-batch -i - -o -`: lines of the OpenAI batch format in, their results out, in order.

    A line's number decides the seed of a request without one and stands in its errors. So a line is written at
    its own number, with empty lines, which `formwork-batch` skips and counts, before it. Its answer is then the
    one of `formwork-batch` over the whole file. An engine that dies is started again, and gets what it owed.
    """

    def __init__(self, spec: EngineSpec) -> None:
        """Checks the node and starts the engine. Raises `EngineError`."""
        spec.check_node()
        self._spec = spec
        # One thread writes, so lines are in the pipe in the order of the calls.
        self._writer = ThreadPoolExecutor(1, "formwork-writer")
        self._process: Process | None = None
        self._waiting: deque[Future[bytes]] = deque()
        self._number = 0
        self._deaths = 0
        self._last_words = ""
        self._is_loaded = False
        self._start()

    def _start(self) -> None:
        waiting: deque[Future[bytes]] = deque()

        def on_line(line: bytes) -> None:
            self._deaths = 0
            waiting.popleft().set_result(line)

        def on_end(last_words: str) -> None:
            self._last_words = last_words
            while waiting:
                waiting.popleft().set_exception(_Died(last_words))

        command = [*self._spec.command("formwork-batch"), "--no-progress", "-i", "-", "-o", "-"]
        self._process = Process(command, on_line, on_end)
        self._waiting = waiting
        self._number = 0

    def _submit(self, lines: Sequence[tuple[int | None, bytes]]) -> list[Future[bytes]]:
        """In the writer's thread: writes lines, and returns what will hold their results."""
        assert self._process is not None
        first = lines[0][0]
        if not self._process.is_alive:
            self._deaths += 1
            if self._deaths > _MAX_DEATHS:
                raise EngineError(
                    f"node {node_name()}: {self._deaths} engines died in a row, the last: {self._last_words}"
                )
            self._start()
        elif first is not None and first <= self._number:
            # A task that comes back from another node is behind: numbers begin anew with a new process, after
            # the old one has answered what it took.
            self._process.stop()
            self._start()
        futures: list[Future[bytes]] = []
        for number, line in lines:
            future: Future[bytes] = Future()
            # From here on nobody can cancel it, so the thread that reads may always set it.
            future.set_running_or_notify_cancel()
            futures.append(future)
            gap = 0 if number is None else number - self._number - 1
            self._number += gap + 1
            self._waiting.append(future)
            try:
                while gap > 0:
                    piece = min(gap, _WRITE_BYTES)
                    self._process.write(b"\n" * piece)
                    gap -= piece
                self._process.write(line if line.endswith(b"\n") else line + b"\n")
            except OSError:
                # It has ended; on_end may have run before this line was among those that it fails.
                if not future.done():
                    self._process.stop()
                if not future.done():
                    future.set_exception(_Died("the engine ended while it was written to"))
        return futures

    async def answer(self, lines: Sequence[tuple[int | None, bytes]]) -> list[bytes]:
        """The results of lines, each with its number or `None` for the next; numbers rise. Each ends with its newline.

        Raises `EngineError` where `_MAX_DEATHS` engines and one more died in a row without an answer.
        """
        results: dict[int, bytes] = {}
        open_lines = list(range(len(lines)))
        loop = asyncio.get_running_loop()
        while open_lines:
            batch = [lines[index] for index in open_lines]
            futures = await loop.run_in_executor(self._writer, self._submit, batch)
            done = await asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)
            for index, result in zip(open_lines, done):
                if isinstance(result, bytes):
                    results[index] = result
                elif not isinstance(result, _Died):
                    raise result
            open_lines = [index for index in open_lines if index not in results]
        # An answer says that the model is there; downloads are over.
        if not self._is_loaded:
            await loop.run_in_executor(None, self._spec.check_loaded)
            self._is_loaded = True
        return [results[index] for index in range(len(lines))]

    def stop(self) -> None:
        """Ends the engine; it writes what is in flight first."""
        if self._process is not None:
            self._process.stop()
