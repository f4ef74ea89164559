"""How long running requests wait for their tokens while other programs use all processors and new constraints are
compiled: `python3 starved.py target/release/formwork`. These are large enumerations, fifty hostile constraints at once, and
two hundred schemas a second for ten seconds. No core may be replaced.

Waits of all requests together: with four streams, how long a stream waits for its next chunk; and how long `/health` took
at most."""

import http.client
import json
import os
import random
import string
import subprocess
import sys
import threading
import time

PORT = 8461
SPINNING = 2 * (os.cpu_count() or 2)


def ask(path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=180)
    headers = {"Content-Type": "application/json"}
    connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers)
    return connection.getresponse()


class Neighbours:
    """Requests that stream, every other one under a regular expression that nobody has asked for yet, and `/health`."""

    def __init__(self, model, count=4):
        self.model, self.waits, self.health, self.ended = model, [], [], False
        threading.Thread(target=self.probe, daemon=True).start()
        for index in range(count):
            threading.Thread(target=self.stream, args=(index,), daemon=True).start()

    def probe(self):
        """Asks for `/health` every 20 ms."""
        while not self.ended:
            start = time.monotonic()
            ask("/health").read()
            self.health.append(time.monotonic() - start)
            time.sleep(0.02)

    def stream(self, index):
        while not self.ended:
            body = {"model": self.model, "prompt": "Hello", "max_tokens": 100, "stream": True, "seed": index}
            if index % 2:
                low, high = random.randrange(1, 4), random.randrange(5, 30)
                body["structured_outputs"] = {
                    "regex": f"x{random.randrange(10**6)}([a-z]{{{low},{high}}}[ ,;]){{60}}"}
            last = time.monotonic()
            for line in ask("/v1/completions", body):
                if line.startswith(b"data:"):
                    now = time.monotonic()
                    self.waits.append(now - last)
                    last = now

    def report(self, what):
        waits, self.waits = sorted(self.waits) or [0.0], []
        at = [waits[len(waits) // 2], waits[len(waits) * 99 // 100], waits[-1]]
        median, p99, longest = (f"{1000 * seconds:.1f}" for seconds in at)
        health, self.health = max(self.health, default=0.0), []
        print(f"{what:30} {len(waits):5} tokens, ms between two: median {median}, p99 {p99}, most {longest}; "
              f"/health at most {1000 * health:.1f}", flush=True)


def hostile_constraints():
    """Fifty that take long to compile, or at each of their tokens."""
    for number in range(10):
        words = [f"value{value}-{number}" for value in range(3000)]
        yield {"regex": f"(.{{0,5000}}x){{200}}{number}"}
        yield {"json": {"oneOf": [
            {"type": "object", "required": ["b"], "properties": {
                f"k{branch}": {"pattern": f"^[a-{chr(98 + branch % 20)}]{{1,{3 + branch % 17}}}x{branch}$"},
                "b": {"pattern": f"^(a|b{branch}|{number})*c$"}}} for branch in range(200)]}}
        yield {"json": {"type": "array", "uniqueItems": True, "items": {"enum": words}}}
        yield {"regex": "".join(f"(?=.*[{letter}-z]{{2,30}}.*{letter}{number})" for letter in "abcd") + "[a-z0-9 ]{9,900}"}
        yield {"json": {"type": "array", "uniqueItems": True, "minItems": 20, "items": {"enum": words}}}


def new_schema(number):
    """One of a kind that people send."""
    return {"type": "object", "required": ["name", "tags"], "properties": {
        "name": {"type": "string", "maxLength": 20 + number % 300},
        f"field{number}": {"enum": [f"a{number}", f"b{number}", None]},
        "tags": {"type": "array", "maxItems": 3, "items": {"type": "string", "pattern": f"^[a-f]{{1,9}}{number}$"}}}}


def constrained(model, constraint):
    """One request, whatever becomes of it."""
    try:
        ask("/v1/completions", {"model": model, "prompt": "Pick", "max_tokens": 30, "structured_outputs": constraint}).read()
    except OSError as error:
        print(f"a request failed: {error}")


def main(program):
    server = subprocess.Popen([program, "serve", "--port", str(PORT), "--disable-log-stats"],
                              stdout=subprocess.DEVNULL)
    spinning = []
    try:
        while True:
            try:
                if ask("/health").status == 200:
                    break
            except OSError:
                if server.poll() is not None:
                    sys.exit("the server ended before it was ready")
                time.sleep(0.1)
        neighbours = Neighbours(json.loads(ask("/v1/models").read())["data"][0]["id"])
        time.sleep(5)
        neighbours.report("alone")
        spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(SPINNING)]
        time.sleep(5)
        neighbours.report(f"{SPINNING} programs spin")
        for count in (2000, 5000, 9000):
            words = ["".join(random.choices(string.ascii_lowercase + " ", k=12)) for _ in range(count)]
            start = time.monotonic()
            answer = ask("/v1/completions", {"model": neighbours.model, "prompt": "Pick", "max_tokens": 30,
                                             "structured_outputs": {"choice": words}})
            answer.read()
            print(f"{count} strings: status {answer.status} after {time.monotonic() - start:.2f} s", flush=True)
            neighbours.report(f"and {count} strings are new")
        hostile = [threading.Thread(target=constrained, args=(neighbours.model, body), daemon=True)
                   for body in hostile_constraints()]
        for thread in hostile:
            thread.start()
        time.sleep(10)
        neighbours.report(f"and {len(hostile)} hostile constraints")
        ends = time.monotonic() + 60
        for thread in hostile:
            thread.join(max(0.0, ends - time.monotonic()))
        left = sum(thread.is_alive() for thread in hostile)
        neighbours.report(f"a minute later, {left} of them left")
        numbers = iter(range(2000))
        for second in range(10):
            start = time.monotonic()
            schemas = [threading.Thread(target=constrained, args=(neighbours.model, {"json": new_schema(next(numbers))}))
                       for _ in range(200)]
            for thread in schemas:
                thread.start()
            time.sleep(max(0.0, start + 1 - time.monotonic()))
        neighbours.report("and 200 schemas a second")
        neighbours.ended = True
        restarts = [line for line in ask("/metrics").read().decode().splitlines()
                    if line.startswith("formwork:engine_restarts_total")]
        print(*restarts)
    finally:
        for process in [*spinning, server]:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main(sys.argv[1])
