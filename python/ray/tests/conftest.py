"""A cluster on this machine: a head without processors and a node, beside which tests put nodes that they take away."""

import json
import os
import shutil

import pytest
import ray
from ray.cluster_utils import Cluster

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9999}, "w": {"type": "string", "maxLength": 12}},
    "required": ["n", "w"],
    "additionalProperties": False,
}


@pytest.fixture(scope="session")
def executables():
    folder = os.environ.get("FORMWORK_BIN", "")
    if shutil.which("formwork-batch", path=folder or None) is None:
        pytest.fail("set FORMWORK_BIN to the folder with formwork, formwork-batch and formwork-engine-core")
    return folder


@pytest.fixture(scope="session")
def cluster(executables):
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    cluster.add_node(num_cpus=2)
    ray.init(address=cluster.address, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def second_node(cluster):
    """A node that a test may remove, with a function that does."""
    node = cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()
    is_there = True

    def remove():
        nonlocal is_there
        if is_there:
            is_there = False
            cluster.remove_node(node, allow_graceful=False)

    yield remove
    remove()


def line(custom_id, prompt, **fields):
    """A line of the batch format."""
    body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": 60, "temperature": 1.0, **fields}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body})
