"""A cluster on this machine: a head without processors and a node, beside which tests put nodes that they take away."""

import json
import os
import shutil

import pytest

try:
    import ray
    from ray.cluster_utils import Cluster
except ImportError:
    from without_ray import stand_in

    stand_in()
    Cluster = None

from formwork.ray._process import executable

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
    if Cluster is None:
        pytest.skip("there is no Ray")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    cluster.add_node(num_cpus=2)
    ray.init(address=cluster.address, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def second_node(cluster):
    """A node that a test may kill."""
    node = SecondNode(cluster)
    yield node
    node.kill()


class SecondNode:
    def __init__(self, cluster):
        self._cluster = cluster
        self._node = cluster.add_node(num_cpus=2)
        cluster.wait_for_nodes()

    def kill(self):
        """Ends all of the node's processes at once; does nothing the second time."""
        if self._node is not None:
            node, self._node = self._node, None
            self._cluster.remove_node(node, allow_graceful=False)

    def num_engines(self):
        """Engines for batches of this node's actors, whose parent is the node's raylet."""
        raylet = self._node.all_processes["raylet"][0].process.pid
        return sum(parent(parent(pid)) == raylet for pid in engine_pids())


def parent(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return None


def engine_pids():
    """Processes of `formwork-batch` that were started from the folder under test."""
    return pids_of(executable("formwork-batch"))


def pids_of(program):
    wanted = os.path.realpath(program)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/exe") == wanted:
                yield int(pid)
        except OSError:
            pass


def line(custom_id, prompt, **fields):
    """A line of the batch format."""
    body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": 60, "temperature": 1.0, **fields}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body})
