"""Keyword arguments of an engine as the native part takes them."""

from __future__ import annotations

import os
import reprlib
from typing import Any

from ._engine import ValidationError
from .sampling_params import to_json

_IDLE: dict[str, tuple[Any, ...]] = {
    "disable_log_stats": (True, False),
    "distributed_executor_backend": ("mp", "uni"),
    "enforce_eager": (True, False),
    "pipeline_parallel_size": (1,),
    "swap_space": (0, 4),
    "tensor_parallel_size": (1,),
    "tokenizer_mode": ("auto",),
    "trust_remote_code": (True, False),
}
"""vLLM's arguments that this engine has no need of, and the values with which they ask for nothing: no code is loaded
with a model, nothing is swapped, no graph is captured unasked, and there is one device."""


def pairs(arguments: dict[str, Any]) -> list[tuple[str, bool | str]]:
    """Each argument with its value as a switch or a text. None is left out, as are vLLM's that ask for nothing.

    Raises `ValidationError` for a value that no flag could have.
    """
    given: list[tuple[str, bool | str]] = []
    for name, value in arguments.items():
        if value is None or value in _IDLE.get(name, ()):
            continue
        if name in _IDLE:
            values = " or ".join(repr(idle) for idle in _IDLE[name])
            error = ValidationError(f"{name} must be {values}, or left out: there is no other here, got {reprlib.repr(value)}")
            error.parameter, error.value = name, reprlib.repr(value)
            raise error
        if isinstance(value, (bool, str)):
            given.append((name, value))
        elif isinstance(value, (int, float)):
            given.append((name, str(value)))
        elif isinstance(value, os.PathLike):
            given.append((name, os.fsdecode(value)))
        else:
            given.append((name, to_json(name, value)))
    return given
