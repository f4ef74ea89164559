"""The server beside a program, such as a notebook."""

from __future__ import annotations

import os
import subprocess
import weakref
from typing import Any

from . import _engine
from ._arguments import pairs
from ._executables import find

_STOP_SECONDS = 60.0
"""Seconds that a server may take to end before it is killed."""


class Server:
    """A server that runs. It ends with this program, however that ends, by `stop`, and at the end of a `with`."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.url = url
        """Its address, such as http://127.0.0.1:8000: `OpenAI(base_url=server.url + "/v1", api_key="none")`."""
        self._process = process
        self._end = weakref.finalize(self, _stop, process)

    def stop(self) -> None:
        """Ends it and waits: its log goes to standard error. A second call does nothing."""
        self._end()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def serve(model: str | os.PathLike[str] | None = None, **arguments: Any) -> Server:
    """Starts `formwork serve` beside this program and waits until it is ready.

    - `model`: as of `LLM`.
    - `arguments`: flags of `formwork serve --help`, with `_` for `-`: `port=0` takes a free one.

    Raises `ValidationError` for an unknown argument and `RuntimeError` where the server ends instead: standard error
    has the reason.
    """
    flags = _engine.serve_arguments(pairs({"model": model, **arguments}))
    command = [find("formwork"), "serve", *flags, "--end-with-stdin"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # Ctrl-C in a terminal is this program's.
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        # One line, when it is ready.
        url = process.stdout.readline().strip()
    except BaseException:
        _stop(process)
        raise
    if not url:
        code = process.wait()
        _stop(process)
        raise RuntimeError(f"formwork serve ended with exit code {code} before it was ready: standard error has the reason")
    return Server(process, url)


def _stop(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
