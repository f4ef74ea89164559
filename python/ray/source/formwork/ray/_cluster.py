"""What Ray knows of the cluster: this machine's name in it, room for engines, and what the first actor of a job found."""

from __future__ import annotations

import logging
import socket
from typing import Any, Mapping

import ray
from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put

_log = logging.getLogger("formwork.ray")

_NAMESPACE = "formwork.ray"
"""Of the keys that `first_of` puts into the cluster's store."""

_NODES_NAMED = 8
"""Nodes whose resources a message tells, those that have most first."""


def node_name() -> str:
    """This machine as errors name it: its host's name, and Ray's address and id of the node where there is one."""
    name = socket.gethostname()
    if ray.is_initialized():
        context = ray.get_runtime_context()
        name += f" ({ray.util.get_node_ip_address()}, node {context.get_node_id()[:8]})"
    return name


def first_of(key: str, value: str) -> str:
    """What the first caller in the cluster gave for `key`: `value`, or what another node's actor had given before."""
    _internal_kv_put(key, value, overwrite=False, namespace=_NAMESPACE)
    found = _internal_kv_get(key, namespace=_NAMESPACE)
    return value if found is None else found.decode()


def resources(num_cpus: float, num_gpus: float, ray_args: Mapping[str, Any] | None) -> dict[str, float]:
    """What an actor needs of its node, by the names that Ray's nodes have for it."""
    asked = {"CPU": num_cpus, "GPU": num_gpus, "memory": (ray_args or {}).get("memory") or 0}
    asked.update((ray_args or {}).get("resources") or {})
    return {name: float(amount) for name, amount in asked.items() if amount}


def warn_without_room(function: str, count: int, asked: Mapping[str, float]) -> str | None:
    """Logs, and returns, what is asked and what there is, where `count` actors don't fit into the cluster's nodes.

    Others' use of the nodes is left out: it may end. So may a lack of nodes, where an autoscaler adds some, which
    is why this is no error. Does nothing before Ray is connected.
    """
    if not ray.is_initialized():
        return None
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    room = sum(int(min(node.get(name, 0) / amount for name, amount in asked.items())) for node in nodes)
    if room >= count:
        return None
    nodes.sort(key=lambda node: [node.get(name, 0) for name in asked], reverse=True)
    there = "; ".join(_amounts({name: node.get(name, 0) for name in asked}) for node in nodes[:_NODES_NAMED])
    more = f", and {len(nodes) - _NODES_NAMED} more" if len(nodes) > _NODES_NAMED else ""
    then = f"only {room} can run" if room else "no node has so much, so none can run"
    message = (
        f"formwork.ray.{function}: {count} engines with {_amounts(asked)} each are asked for, and {then} until nodes "
        f"are added; the nodes there are: {there}{more}"
    )
    _log.warning(message)
    return message


def _amounts(of: Mapping[str, float]) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in of.items())
