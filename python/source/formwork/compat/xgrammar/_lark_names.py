"""What XGrammar's Lark means otherwise: `@name` is a grammar within the grammar, and `%json` has white space anywhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from .exception import GrammarError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
# What may hold an @ that names nothing (strings, regular expressions, comments), or an @ that does.
_PIECES = re.compile(
    r"""(?P<other>"(?:\\.|[^"\\])*"|/(?![/*])(?:\\.|[^/\\\n])+/|//[^\n]*|\#[^\n]*|%json\s*(?:\{|true\b))"""
    r"|@(?P<name>[A-Za-z_][A-Za-z0-9_-]*)"
)
_EMPTY = re.compile(r"\s*\}")
_ANY_SPACE = r'"x-guidance": {"whitespace_pattern": "[ \n\r\t]*"}'


def with_any_space(source: str) -> str:
    """The grammar with white space anywhere in its JSON, but where a schema says how it is written."""
    if "x-guidance" in source:
        return source

    def piece(match: re.Match[str]) -> str:
        if not match[0].startswith("%json"):
            return match[0]
        if match[0].endswith("true"):
            return f"%json {{{_ANY_SPACE}}}"
        return match[0] + _ANY_SPACE + ("" if _EMPTY.match(source, match.end()) else ", ")

    return _PIECES.sub(piece, source)


def written_out(source: str, named: Mapping[str, Callable[[], str]]) -> str:
    """The grammar with each `@name` as `%lark` of what `named` gives for it, at any depth.

    Args:
        source: a grammar in Lark.
        named: the source of each named grammar, in Lark.

    Raises:
        GrammarError: a name that isn't one, that is unknown, or that leads back to itself.
    """
    for name in named:
        if not _NAME.fullmatch(name):
            raise GrammarError(f"Invalid named grammar name {name!r}: it must be as {_NAME.pattern}")
    return _expanded(source, named, ())


def _expanded(source: str, named: Mapping[str, Callable[[], str]], path: tuple[str, ...]) -> str:
    def piece(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None:
            return match[0]
        if name not in named:
            raise GrammarError(f"unknown named grammar @{name}: named_grammars has {sorted(named)}")
        if name in path:
            way = " -> ".join(f"@{each}" for each in (*path, name))
            raise GrammarError(f"circular named grammar reference: {way}")
        return f"%lark {{\n{_expanded(named[name](), named, (*path, name))}\n}}"

    return _PIECES.sub(piece, source)
