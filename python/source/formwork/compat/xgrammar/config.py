"""Settings of the process that XGrammar has: a depth of recursion, which nothing here needs; a version."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

__all__ = [
    "get_max_recursion_depth",
    "get_serialization_version",
    "max_recursion_depth",
    "set_max_recursion_depth",
]

_LARGEST_DEPTH = 1_000_000
_SERIALIZATION_VERSION = "formwork-1"


def _from_environment() -> int:
    text = os.environ.get("XGRAMMAR_MAX_RECURSION_DEPTH", "")
    return int(text) if text.isdecimal() and 0 < int(text) <= _LARGEST_DEPTH else 10_000


_depth = _from_environment()


def get_max_recursion_depth() -> int:
    """The number that was set, or 10,000. Formwork's matcher doesn't recurse, so it limits nothing."""
    return _depth


def set_max_recursion_depth(max_recursion_depth: int) -> None:
    """Sets the number that `get_max_recursion_depth` gives.

    Raises:
        RuntimeError: not within 1 and 1,000,000.
    """
    global _depth
    if not 0 < max_recursion_depth <= _LARGEST_DEPTH:
        raise RuntimeError(
            f"max_recursion_depth is {max_recursion_depth}, but it must be within 1 and {_LARGEST_DEPTH}"
        )
    _depth = max_recursion_depth


@contextlib.contextmanager
def max_recursion_depth(temp_depth: int) -> Iterator[None]:
    """Sets the number for a `with` block."""
    before = get_max_recursion_depth()
    set_max_recursion_depth(temp_depth)
    try:
        yield
    finally:
        set_max_recursion_depth(before)


def get_serialization_version() -> str:
    """The version of `serialize_json`'s text. It is Formwork's own: XGrammar's automata mean nothing here."""
    return _SERIALIZATION_VERSION
