#!/usr/bin/env python3
"""How much two nodes of a Ray cluster answer over one, with both nodes on this machine.

    FORMWORK_BIN=target/release python benchmarks/ray_nodes.py [--lines 2000] [--rounds 3]

Python needs formwork-ray (`pip install ./python/ray`). A cluster of `ray.cluster_utils.Cluster` with a head without
processors and nodes of one each; one engine of one thread on each node; the built-in model; a batch file of
requests under a JSON Schema. Three ways take turns: `formwork-batch` alone with one thread, `batch_file` on one node,
`batch_file` on two. Then a node is killed after a quarter of a run on two. Prints medians, and whether all files
are equal. The seconds are those of the whole run, with the start of the actors and engines; the rate is that from the
first tenth of the results on.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import ray
from ray.cluster_utils import Cluster

import formwork.ray
from formwork.ray._process import executable

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9999}, "w": {"type": "string", "maxLength": 12}},
    "required": ["n", "w"],
    "additionalProperties": False,
}


def request(number):
    body = {
        "messages": [{"role": "user", "content": f"Tell me about {number}."}],
        "max_tokens": 60,
        "temperature": 1.0,
        "structured_outputs": {"json": SCHEMA},
    }
    return json.dumps({"custom_id": str(number), "method": "POST", "url": "/v1/chat/completions", "body": body})


def results(path):
    """A file's results without their times."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    for result in found:
        del result["response"]["body"]["created"]
    return found


def alone(source, target):
    command = [executable("formwork-batch"), "--no-progress", "-i", source, "-o", target, "--threads", "1", "--overwrite"]
    environment = {name: value for name, value in os.environ.items() if name != "FORMWORK_BIN"}
    subprocess.run(command, check=True, env=environment, capture_output=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    os.environ["FORMWORK_BIN"] = os.path.abspath(os.environ.get("FORMWORK_BIN", "target/release"))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False)
    folder = pathlib.Path(tempfile.mkdtemp())
    source = folder / "in.jsonl"
    source.write_text("".join(request(number) + "\n" for number in range(arguments.lines)))

    def by_ray(engines, target, on_progress=lambda summary: None):
        seen = []

        def note(summary):
            seen.append((time.monotonic(), summary.lines))
            on_progress(summary)

        summary = formwork.ray.batch_file(str(source), str(target), engines=engines, overwrite=True, on_progress=note)
        begin = next(point for point in seen if point[1] >= arguments.lines / 10)
        rate = (seen[-1][1] - begin[1]) / (seen[-1][0] - begin[0])
        return rate, summary

    ways = {
        "formwork-batch, one thread": lambda target: alone(source, target),
        "batch_file, one node": lambda target: by_ray(1, target)[0],
        "batch_file, two nodes": lambda target: by_ray(2, target)[0],
    }
    seconds, rates = {way: [] for way in ways}, {way: [] for way in ways}
    files = []
    for _ in range(arguments.rounds):
        for number, (way, run) in enumerate(ways.items()):
            target = folder / f"{number}.jsonl"
            begin = time.monotonic()
            rate = run(target)
            seconds[way].append(time.monotonic() - begin)
            rates[way].append(rate or arguments.lines / seconds[way][-1])
            files.append(results(target))

    def kill(summary):
        if summary.lines >= arguments.lines // 4 and nodes:
            cluster.remove_node(nodes.pop(), allow_graceful=False)
            nodes.clear()

    begin = time.monotonic()
    rate, summary = by_ray(2, folder / "killed.jsonl", kill)
    killed = "the same, one node killed after a quarter"
    seconds[killed], rates[killed] = [time.monotonic() - begin], [rate]
    files.append(results(folder / "killed.jsonl"))

    for way, taken in seconds.items():
        print(f"{way}: {statistics.median(taken):.1f} s, {statistics.median(rates[way]):.0f} requests/s")
    print(f"engines replaced: {summary.restarts}; all files equal: {all(file == files[0] for file in files)}")
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
