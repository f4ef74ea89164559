"""Plays kubelet for one pod: starts `formwork serve` with what the manifests give it, and asks its probes.

    kubelet.py FORMWORK

For the base and for the gateway's overlay: startup, readiness and liveness while it loads, serves, is paused, has lost
its core, and drains. SIGTERM comes while a stream runs, which must end whole; the endpoint picker's metrics are read
as the picker reads them. KUBECTL is the program. No step looks at a clock but to give up.
"""

import http.client
import json
import math
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import yaml

DEPLOY = pathlib.Path(__file__).parent.parent
KEY = "a-key-of-the-secret"
# Seconds until a step is given up.
PATIENCE = 120
STREAM = {"prompt": "Once", "max_tokens": 1900, "ignore_eos": True, "temperature": 0}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Pod:
    """A server with the container's arguments and variables, at free ports of this machine."""

    def __init__(self, formwork, container):
        self.container = container
        self.ports = {port["containerPort"]: free_port() for port in container["ports"]}
        self.names = {port["name"]: port["containerPort"] for port in container["ports"]}
        variables = {variable["name"]: self.value(variable) for variable in container["env"]}
        variables["FORMWORK_PORT"] = str(self.ports[8000])
        for name, value in variables.items():
            if name.endswith("_HOST"):
                variables[name] = "127.0.0.1"
            if name == "FORMWORK_MANAGEMENT_PORT":
                variables[name] = str(self.ports[int(value)])
        variables["FORMWORK_KV_CACHE_MEMORY_BYTES"] = "134217728"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FORMWORK")}
        self.process = subprocess.Popen(
            [formwork, *container["args"]],
            env=environment | variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    @staticmethod
    def value(variable):
        """A variable's value, as the cluster would give it."""
        if "value" in variable:
            return variable["value"]
        if "secretKeyRef" in variable["valueFrom"]:
            return KEY
        return "2"

    def connect(self, port, timeout=PATIENCE):
        return http.client.HTTPConnection("127.0.0.1", self.ports[port], timeout=timeout)

    def request(self, port, method, path, body=None, key=True):
        """Status, headers and body of an answer."""
        headers = {"content-type": "application/json"}
        if key:
            headers["authorization"] = f"Bearer {KEY}"
        connection = self.connect(port)
        connection.request(method, path, body and json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()

    def probe(self, which):
        """True if a probe succeeds now: an answer below 400 within its time."""
        probe = self.container[f"{which}Probe"]
        get = probe["httpGet"]
        connection = self.connect(self.names.get(get["port"], get["port"]), probe.get("timeoutSeconds", 1))
        try:
            connection.request("GET", get["path"])
            return 200 <= connection.getresponse().status < 400
        except OSError:
            return False

    def wait_for(self, which, wanted):
        """Asks a probe until it says what is wanted."""
        end = time.monotonic() + PATIENCE
        while self.probe(which) != wanted:
            assert self.process.poll() is None, f"the server ended with {self.process.poll()}"
            assert time.monotonic() < end, f"{which}: never {wanted}"
            time.sleep(0.05)

    def core(self):
        """The process id of the engine core."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/children")
        ids = [int(word) for path in children for word in path.read_text().split()]
        assert len(ids) == 1, ids
        return ids[0]


def events(pod, started):
    """The text of a stream's pieces, the reason of its end, and whether it was whole; sets `started` at the first."""
    connection = pod.connect(8000)
    body = json.dumps({**STREAM, "stream": True})
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
    connection.request("POST", "/v1/completions", body, headers)
    answer = connection.getresponse()
    assert answer.status == 200, answer.status
    text, reason, whole = "", None, False
    for line in answer:
        data = line.decode().strip().removeprefix("data: ")
        if data == "[DONE]":
            whole = True
        elif data:
            choice = json.loads(data)["choices"][0]
            text += choice["text"]
            reason = choice["finish_reason"] or reason
            started.set()
    return text, reason, whole


def drain(pod):
    """SIGTERM while a stream runs: it ends whole, new requests are refused, the exit code is 0."""
    _, _, undisturbed = pod.request(8000, "POST", "/v1/completions", STREAM)
    expected = json.loads(undisturbed)["choices"][0]["text"]
    started, result = threading.Event(), []
    reader = threading.Thread(target=lambda: result.append(events(pod, started)))
    reader.start()
    assert started.wait(PATIENCE), "the stream never began"
    pod.process.send_signal(signal.SIGTERM)
    pod.wait_for("readiness", False)
    assert pod.probe("liveness"), "a pod that drains is not dead"
    status, headers, _ = pod.request(8000, "POST", "/v1/completions", STREAM)
    assert status == 503, status
    assert headers["retry-after"] and headers["connection"] == "close", headers
    assert not result, "the stream ended before new requests were looked at; STREAM is too short"
    reader.join(PATIENCE)
    assert result == [(expected, "length", True)], "the stream isn't the answer without SIGTERM"
    code = pod.process.wait(PATIENCE)
    assert code == 0, code


def picker(pod, config):
    """Reads what the endpoint picker reads, at the port of requests and without a key."""
    status, _, metrics = pod.request(8000, "GET", "/metrics", key=False)
    assert status == 200, status
    extractor = next(plugin for plugin in config["plugins"] if plugin["type"] == "core-metrics-extractor")
    engine = extractor["parameters"]["engineConfigs"][0]
    for field in ("queuedRequestsSpec", "runningRequestsSpec", "kvUsageSpec", "cacheInfoSpec"):
        name = engine[field]
        assert f"# TYPE {name} gauge" in metrics, name
        samples = re.findall(rf"(?m)^{name}\{{(.*)\}} (\S+)$", metrics)
        assert len(samples) == 1, (name, samples)
        assert math.isfinite(float(samples[0][1]))
        if field == "cacheInfoSpec":
            labels = dict(re.findall(r'(\w+)="([^"]*)"', samples[0][0]))
            assert int(labels["block_size"]) > 0 and int(labels["num_gpu_blocks"]) > 0, labels


def live(formwork, folder):
    """A pod's life, from its start to its end."""
    rendered = subprocess.run([os.environ["KUBECTL"], "kustomize", DEPLOY / folder], capture_output=True, check=True)
    objects = list(yaml.safe_load_all(rendered.stdout))
    deployment = next(o for o in objects if (o["kind"], o["metadata"]["name"]) == ("Deployment", "formwork"))
    pod = Pod(formwork, deployment["spec"]["template"]["spec"]["containers"][0])
    try:
        # A fast machine has loaded the model before the first probe's second is over.
        pod.wait_for("startup", True)
        assert pod.probe("readiness") and pod.probe("liveness")
        administration = pod.names.get("management", 8000)
        status, _, _ = pod.request(administration, "GET", "/metrics", key=False)
        assert status == 200, status
        status, _, _ = pod.request(8000, "GET", "/v1/models", key=False)
        assert status == 401, status

        # Paused: no new requests, no restart.
        assert pod.request(administration, "POST", "/pause?mode=keep")[0] == 200
        assert not pod.probe("readiness") and pod.probe("liveness")
        assert pod.request(administration, "POST", "/resume")[0] == 200
        pod.wait_for("readiness", True)

        # The core dies: not dead, and soon ready again.
        core = pod.core()
        os.kill(core, signal.SIGKILL)
        pod.wait_for("readiness", True)
        assert pod.probe("liveness")
        assert pod.request(8000, "POST", "/v1/completions", {"prompt": "a", "max_tokens": 1})[0] == 200
        assert pod.core() != core

        if "management" not in pod.names:
            file = DEPLOY / "components" / "gateway" / "endpoint-picker-config.yaml"
            picker(pod, yaml.safe_load(file.read_text()))
        drain(pod)
    finally:
        pod.process.kill()
        pod.process.wait()
    print(f"{folder}: loaded, paused, lost its core, drained")


if __name__ == "__main__":
    executable = pathlib.Path(sys.argv[1]).resolve()
    for which in ("base", "overlays/gateway"):
        live(executable, which)
