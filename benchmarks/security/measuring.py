"""A server under attack: starts it, measures the memory of both its processes, probes it beside."""

import json
import multiprocessing
import os
import resource
import socket
import subprocess
import threading
import time

KEY = "the-tenants-key"
MIB = 1 << 20
# Address space of each process: an attack that works ends the server instead of this machine.
MAX_ADDRESS_SPACE = 4 << 30
PROBE_INTERVAL = 0.02
# Bytes of an answer that are read; the rest of a longer one is counted and dropped.
MAX_KEPT_ANSWER = 4 * MIB


class Answer:
    """Status, head and body of an answer; status 0 if the connection broke, with the reason."""

    def __init__(self, status=0, head="", body=b"", size=0, seconds=0.0, problem=""):
        self.status, self.head, self.body = status, head, body
        self.size, self.seconds, self.problem = size, seconds, problem

    def json(self):
        try:
            return json.loads(self.body)
        except ValueError:
            return {}


def connect(address, timeout=180.0):
    """A connection to "host:port" or to the path of a Unix domain socket."""
    if address.startswith("/"):
        stream = socket.socket(socket.AF_UNIX)
        stream.settimeout(timeout)
        stream.connect(address)
        return stream
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout)


def head(method, path, length=None, headers=(), key=KEY):
    """A request's head. `length` None: no body, and no Content-Type."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", *headers]
    if key is not None:
        lines.append(f"Authorization: Bearer {key}")
    if length is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {length}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def read_answer(stream):
    """Reads one answer up to the end of the connection."""
    data, size = bytearray(), 0
    try:
        while chunk := stream.recv(1 << 18):
            size += len(chunk)
            if len(data) < MAX_KEPT_ANSWER:
                data += chunk
    except OSError as error:
        if not data:
            return Answer(problem=type(error).__name__)
    top, _, body = bytes(data).partition(b"\r\n\r\n")
    words = top.split(b" ", 2)
    if len(words) < 2 or not words[1].isdigit():
        return Answer(problem="no answer")
    return Answer(int(words[1]), top.decode("latin-1"), body, size)


def ask(address, method, path, body=None, headers=(), key=KEY, timeout=180.0):
    """Sends one request on a connection of its own, and reads its answer."""
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    start = time.monotonic()
    try:
        with connect(address, timeout) as stream:
            try:
                length = None if body is None else len(body)
                stream.sendall(head(method, path, length, headers, key) + (body or b""))
            except OSError:
                pass  # Refused early: the answer is there, or the connection is gone.
            answer = read_answer(stream)
    except OSError as error:
        answer = Answer(problem=type(error).__name__)
    answer.seconds = time.monotonic() - start
    return answer


def _probe(address, key, path, body, stop, latencies):
    while not stop.is_set():
        due = time.monotonic()
        answer = ask(address, "POST" if body else "GET", path, body, key=key, timeout=60.0)
        latencies.append((answer.seconds, answer.status))
        stop.wait(max(0.0, PROBE_INTERVAL - (time.monotonic() - due)))


def _probe_process(address, key, pipe):
    """Another client in a process of its own: `/health`, a completion and a chat of one token."""
    completion = {"prompt": "Hi", "max_tokens": 1, "temperature": 0}
    chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "temperature": 0}
    probes = [("/health", None), ("/v1/completions", completion), ("/v1/chat/completions", chat)]
    stop, results = threading.Event(), [[] for _ in probes]
    threads = [
        threading.Thread(target=_probe, args=(address, key, path, body, stop, kept))
        for (path, body), kept in zip(probes, results)
    ]
    for thread in threads:
        thread.start()
    while True:
        command = pipe.recv()
        if command == "stop":
            break
        taken = [list(kept) for kept in results]
        for kept in results:
            kept.clear()
        pipe.send(taken)
    stop.set()


class Probe:
    """Small requests of another client, every 20 ms of each kind."""

    def __init__(self, address, key=KEY):
        self.pipe, other = multiprocessing.Pipe()
        self.process = multiprocessing.Process(
            target=_probe_process, args=(address, key, other), daemon=True
        )
        self.process.start()

    def take(self):
        """Latencies and statuses since the last call, by kind."""
        self.pipe.send("take")
        return self.pipe.recv()

    def stop(self):
        self.pipe.send("stop")
        self.process.join(2)
        if self.process.is_alive():
            self.process.kill()


def milliseconds(latencies, share):
    """A quantile of the probe's latencies."""
    ordered = sorted(seconds for seconds, _ in latencies)
    if not ordered:
        return float("nan")
    return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def status_field(process, name):
    """A field of /proc/PID/status in bytes."""
    try:
        with open(f"/proc/{process}/status") as status:
            for line in status:
                if line.startswith(name + ":"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def children(process):
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as stat:
                    if int(stat.read().rsplit(")", 1)[1].split()[1]) == process:
                        found.append(int(entry))
            except OSError:
                pass
    return found


class Server:
    """`formwork serve` on the built-in model, or on `model`; ends with the `with` block."""

    def __init__(self, binaries, *flags, model=None, key=True, env=None, log=None):
        self.log_path = log or "/dev/null"
        command = [os.path.join(binaries, "formwork"), "serve"]
        command += [model] if model else []
        if not any(flag in ("--uds", "--host") for flag in flags):
            command += ["--host", "127.0.0.1"]
        command += ["--port", "0", "--threads", "1", "--num-blocks-override", "2048"]
        command += ["--api-key", KEY] if key is True else []
        variables = {k: v for k, v in os.environ.items() if not k.startswith("FORMWORK_")}
        variables.update(env or {})
        self.key = KEY if key else None
        with open(self.log_path, "w") as log_file:
            self.process = subprocess.Popen(
                command + list(flags), env=variables, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=log_file, preexec_fn=self._limit,
            )
        self.started = time.monotonic()
        line = self.process.stdout.readline().decode().strip()
        self.startup_seconds = time.monotonic() - self.started
        self.address = line.removeprefix("http://").removeprefix("unix:")
        cores = children(self.process.pid)
        self.core = cores[0] if cores else None

    @staticmethod
    def _limit():
        resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_SPACE, MAX_ADDRESS_SPACE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    @property
    def is_up(self):
        return self.process.poll() is None

    def ends_within(self, seconds):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()

    def ask(self, method, path, body=None, headers=(), key="", timeout=180.0):
        key = self.key if key == "" else key
        return ask(self.address, method, path, body, headers, key, timeout)

    def warm_up(self):
        """Touches what any request uses: buffers of a full step, the cache, the template."""
        prompt = {"prompt": list(range(100, 1100)), "max_tokens": 8, "n": 32, "logprobs": 5}
        for _ in range(2):
            self.ask("POST", "/v1/completions", prompt)
            message = [{"role": "user", "content": "Hi"}]
            schema = {"type": "object", "properties": {"a": {"type": "string"}}}
            body = {"messages": message, "max_tokens": 8, "structured_outputs": {"json": schema}}
            self.ask("POST", "/v1/chat/completions", body)


class Measured:
    """Memory of both processes and delays of the probe while the `with` block runs."""

    def __init__(self, server, idle=1.0, probe=True):
        self.server, self.idle, self.with_probe = server, idle, probe
        self.result = None

    def processes(self):
        found = [self.server.process.pid] + children(self.server.process.pid)
        return found if self.server.is_up else []

    def _sample(self):
        while not self.stopped.wait(0.01):
            now = sum(status_field(process, "VmRSS") for process in self.processes_before)
            self.sampled = max(self.sampled, now)

    def __enter__(self):
        self.probe = Probe(self.server.address, self.server.key) if self.with_probe else None
        if self.probe:
            time.sleep(self.idle)
            self.idle_latencies = self.probe.take()
        self.processes_before = self.processes()
        for process in self.processes_before:
            try:
                with open(f"/proc/{process}/clear_refs", "w") as clear:
                    clear.write("5")
            except OSError:
                pass
        self.before = sum(status_field(process, "VmRSS") for process in self.processes_before)
        self.sampled, self.stopped = self.before, threading.Event()
        self.sampler = threading.Thread(target=self._sample, daemon=True)
        self.sampler.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.sampler.join()
        marks = [status_field(process, "VmHWM") for process in self.processes_before]
        # A process that died has no mark any more; its last sample counts.
        peak = sum(marks) if all(marks) else self.sampled
        self.memory = max(0, peak - self.before)
        self.latencies = []
        self.idle_latencies = self.idle_latencies if self.probe else []
        if self.probe:
            self.latencies = self.probe.take()
            self.probe.stop()

    def delays(self):
        """Most that a probe took beyond the median of an idle server, in ms, of each kind."""
        delays = []
        for idle, during in zip(self.idle_latencies, self.latencies):
            if idle and during:
                worst = max(seconds for seconds, _ in during)
                delays.append(max(0.0, 1000 * worst - milliseconds(idle, 0.5)))
        return delays or [float("nan")]

    def num_refused(self):
        """Probes that were not answered with 200."""
        return sum(status != 200 for _, status in sum(self.latencies, []))
