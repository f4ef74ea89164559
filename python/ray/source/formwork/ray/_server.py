"""The server that a replica of Ray Serve's owns: `formwork serve` on a socket of its own."""

from __future__ import annotations

import glob
import math
import os
import socket
import threading
import time
import uuid
from contextlib import suppress

from ._cluster import node_name
from ._engine import EngineError, EngineSpec
from ._process import Process

_SOCKET = "/tmp/formwork-ray-{}.sock"
"""A socket's path may have 107 bytes, which a worker's own folder may exceed."""

_YOUNG_S = 60.0
"""Seconds for which a socket that nobody listens at is left alone: its server may be about to."""


def remove_stale_sockets() -> None:
    """Removes this user's sockets whose server is gone: one that was killed could not."""
    for path in glob.glob(_SOCKET.format("*")):
        with suppress(OSError):
            status = os.lstat(path)
            if status.st_uid != os.getuid() or time.time() - status.st_mtime < _YOUNG_S:
                continue
            with socket.socket(socket.AF_UNIX) as probe:
                probe.setblocking(False)
                try:
                    probe.connect(path)
                except ConnectionRefusedError:
                    os.unlink(path)


class Server:
    """A `formwork serve` on a Unix domain socket that only this user can open."""

    def __init__(
        self, spec: EngineSpec, max_num_seqs: int, drain_s: float, start_s: float, api_key: str | None = None
    ) -> None:
        """Checks the node, starts the server and waits until it is ready. Raises `EngineError`.

        `api_key` goes into its environment: every user of the node can read a command line.
        """
        spec.check_node()
        remove_stale_sockets()
        self._drain_s = drain_s
        # The server makes it with mode 600 and removes it when it ends.
        self.socket = _SOCKET.format(uuid.uuid4().hex)
        self._last_words = ""
        ready = threading.Event()

        def on_end(last_words: str) -> None:
            self._last_words = last_words
            ready.set()

        command = spec.command("formwork")
        # What `serve` prints on its standard output is its address, once requests may come.
        limits = ["--max-num-seqs", str(max_num_seqs), "--shutdown-timeout", str(math.ceil(drain_s))]
        command[1:1] = ["serve", "--uds", self.socket, *limits]
        environment = {} if api_key is None else {"FORMWORK_API_KEY": api_key}
        self._process = Process(command, lambda line: ready.set(), on_end, environment)
        if not ready.wait(start_s):
            self.stop()
            raise EngineError(f"node {node_name()}: formwork serve was not ready after start_s = {start_s} seconds")
        if not self._process.is_alive:
            self.stop()
            raise EngineError(f"node {node_name()}: {self._last_words}")
        try:
            spec.check_loaded()
        except EngineError:
            self.stop()
            raise

    @property
    def ended(self) -> str | None:
        """What the server last said, once it has ended."""
        return None if self._process.is_alive else self._last_words

    def stop(self) -> None:
        """Lets requests in flight finish for the drain's seconds, then ends the server. Removes what a killed one left."""
        self._process.stop(self._drain_s)
        with suppress(OSError):
            os.unlink(self.socket)
