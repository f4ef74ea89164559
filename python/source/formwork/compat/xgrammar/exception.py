"""What goes wrong, under XGrammar's names.

Each of these is a RuntimeError, as there, and `formwork.grammar.CompileError`, whose attributes say where
(pointer, line, column) and which limit.
"""

from __future__ import annotations

from formwork.grammar import CompileError

__all__ = [
    "DeserializeFormatError",
    "DeserializeVersionError",
    "GrammarError",
    "InvalidJSONError",
    "InvalidStructuralTagError",
]

_ATTRIBUTES = ("kind", "message", "pointer", "line", "column", "offset", "option", "limit", "max")


class GrammarError(CompileError, RuntimeError):
    """A grammar that can't be compiled."""


class InvalidStructuralTagError(GrammarError):
    """A structural tag that is malformed, or has a part that can't be compiled."""


class InvalidJSONError(GrammarError):
    """Text that is no JSON."""


class DeserializeFormatError(RuntimeError):
    """A serialized object lacks a field, or has one of another type."""


class DeserializeVersionError(RuntimeError):
    """A serialized object was written by another package or version."""


def translated(error: CompileError, *, structural_tag: bool = False) -> GrammarError:
    """The error of the engine as one of those above, with its attributes."""
    if error.kind == "json_syntax":
        own: type[GrammarError] = InvalidJSONError
    elif structural_tag:
        own = InvalidStructuralTagError
    else:
        own = GrammarError
    new = own(f"Invalid structural tag error: {error}" if own is InvalidStructuralTagError else str(error))
    for name in _ATTRIBUTES:
        setattr(new, name, getattr(error, name))
    return new
