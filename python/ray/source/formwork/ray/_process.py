"""The life of one of Formwork's processes: found, started, its log kept, told to end, never left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from typing import Callable, Mapping, Sequence

from ._cluster import node_name

_LOG_LINES = 20
"""Last lines of a process's log that its error repeats."""

_STOP_SECONDS = 60.0
"""Seconds that a process may take to end beyond what its work was given."""

_LAUNCHER = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 15)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
"""Program that becomes an engine's: first it asks Linux for SIGTERM (15) at its parent's death (PR_SET_PDEATHSIG,
1), and looks whether that was before. A function for `Popen`'s `preexec_fn` would need a fork of a worker in which
gRPC's threads run; this one is started without."""


class EngineError(RuntimeError):
    """An engine can't start, died again and again, or refused what all rows have. The message names node, engine and cause."""


def executable(name: str) -> str:
    """Path of one of Formwork's executables on this machine: in the folder `FORMWORK_BIN`, else in `PATH`.

    Raises `EngineError` where it isn't.
    """
    folder = os.environ.get("FORMWORK_BIN")
    found = shutil.which(name, path=folder) if folder else shutil.which(name)
    if found is None:
        where = f"the folder FORMWORK_BIN={folder!r}" if folder else "PATH, and FORMWORK_BIN is not set"
        raise EngineError(f"node {node_name()}: {name} is not in {where}: install Formwork there")
    return found


def version() -> str:
    """What `formwork --version` says on this machine. Raises `EngineError` where it can't be had."""
    command = [executable("formwork"), "--version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineError(f"node {node_name()}: {command[0]} --version failed: {error}") from error
    return done.stdout.strip()


class Process:
    """A running process, and a thread that reads its standard output line by line.

    The thread starts the process too and lives as long: Linux sends the parent-death signal when the thread
    that started a process ends. With it a worker that is killed leaves no engine behind.
    """

    def __init__(
        self,
        command: Sequence[str],
        on_line: Callable[[bytes], None],
        on_end: Callable[[str], None],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Starts `command`. `on_line` gets each line of its output, `on_end` once what it last said; both in a thread.
        `environment` is set beside this process's own.

        Raises `EngineError` where the system can't start it.
        """
        self._command = list(command)
        self._on_line = on_line
        self._on_end = on_end
        # Each variable FORMWORK_X stands for a flag --x, and none of Formwork's has this one.
        inherited = {name: value for name, value in os.environ.items() if name != "FORMWORK_BIN"}
        self._environment = {**inherited, **(environment or {})}
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        self._started = threading.Event()
        self._failure: OSError | None = None
        self._popen: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name=os.path.basename(command[0]), daemon=True)
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            raise EngineError(f"node {node_name()}: {command[0]} can't be started: {self._failure}")

    def _run(self) -> None:
        try:
            popen = subprocess.Popen(
                [sys.executable, "-ISc", _LAUNCHER, str(os.getpid()), *self._command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # Ctrl-C in a terminal is the driver's, who then stops the engines in order.
                start_new_session=True,
                env=self._environment,
            )
        except (OSError, subprocess.SubprocessError) as error:
            self._failure = error if isinstance(error, OSError) else OSError(str(error))
            self._started.set()
            return
        self._popen = popen
        self._started.set()
        assert popen.stdout is not None and popen.stderr is not None
        log = threading.Thread(target=self._read_log, args=(popen.stderr,), daemon=True)
        log.start()
        for line in popen.stdout:
            self._on_line(line)
        code = popen.wait()
        log.join()
        self._on_end(f"{os.path.basename(self._command[0])} ended with exit code {code}: " + "\n".join(self._log))

    def _read_log(self, stream: object) -> None:
        """Keeps the last lines of the log, and hands all of it to this worker's, which Ray shows and collects."""
        for line in stream:  # type: ignore[attr-defined]
            text = line.decode(errors="replace")
            self._log.append(text.rstrip())
            sys.stderr.write(text)

    @property
    def is_alive(self) -> bool:
        """True until the process has ended and its output is read."""
        return self._thread.is_alive()

    def write(self, data: bytes) -> None:
        """Writes to its standard input; waits while it doesn't read. Raises `OSError` where it has ended."""
        assert self._popen is not None and self._popen.stdin is not None
        self._popen.stdin.write(data)
        self._popen.stdin.flush()

    def stop(self, drain_s: float = 0.0) -> None:
        """SIGTERM, then SIGKILL if it is still there `drain_s` and a minute later. Returns when it has ended."""
        assert self._popen is not None
        if self._popen.poll() is None:
            self._popen.send_signal(signal.SIGTERM)
        self._thread.join(drain_s + _STOP_SECONDS)
        if self._thread.is_alive():
            self._popen.kill()
            self._thread.join()
