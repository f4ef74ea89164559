"""How long running requests wait for their tokens while other programs use all processors and a new, large
enumeration is compiled: `python3 starved.py target/release/formwork`. No core may be replaced."""

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
    """Requests that stream, every other one under a regular expression that nobody has asked for yet."""

    def __init__(self, model, count=4):
        self.model, self.waits, self.ended = model, [], False
        for index in range(count):
            threading.Thread(target=self.stream, args=(index,), daemon=True).start()

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
        print(f"{what:30} {len(waits):5} tokens, ms between two: median {median}, p99 {p99}, most {longest}",
              flush=True)


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
        neighbours.ended = True
    finally:
        for process in [*spinning, server]:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main(sys.argv[1])
