"""Strings that hold no mark, in keywords of JSON Schema: what `excludes` of a `json_schema` format means."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ._schema import OPEN, one_of

_ANY = "formwork.any"
_TYPES = ["string", "number", "boolean", "null", "array", "object"]
_BRANCHES = ("allOf", "anyOf", "oneOf")
_STRING_KEYWORDS = ("pattern", "format")


def without_marks(schema: Any, marks: Sequence[str], *, root_is_json: bool) -> Any:
    """A copy of a schema whose strings and keys hold none of the marks, at any depth.

    As in XGrammar, a string with `pattern` or `format` is left to that, and listed values that hold a mark are
    left out. Escapes count as what they stand for. Schemas in `not` and `if` stay as they are.

    Args:
        schema: strict, as `closed` gives it.
        marks: what to exclude.
        root_is_json: False where the whole object is written in tags, whose names hold no marks.
    """
    escaped = (re.sub(r"[\^$\\.*+?()[\]{}|/]", r"\\\g<0>", mark) for mark in marks)
    pattern = "^(?![\\s\\S]*(?:" + "|".join(escaped) + "))"
    own = _Marks(pattern, marks)
    new = own.schema(schema, names=root_is_json)
    if own.any_used and isinstance(new, dict):
        anything = {
            "type": _TYPES,
            "pattern": pattern,
            "items": {"$ref": f"#/$defs/{_ANY}"},
            "additionalProperties": {"$ref": f"#/$defs/{_ANY}"},
            "propertyNames": {"pattern": pattern},
        }
        new["$defs"] = {**new.get("$defs", {}), _ANY: anything}
    return new


class _Marks:
    def __init__(self, pattern: str, marks: Sequence[str]) -> None:
        self.pattern, self.marks, self.any_used = pattern, marks, False

    def anything(self) -> dict[str, Any]:
        """Any value without marks."""
        self.any_used = True
        return {"$ref": f"#/$defs/{_ANY}"}

    def holds(self, value: Any) -> bool:
        """True if a listed value holds a mark."""
        if isinstance(value, str):
            return any(mark in value for mark in self.marks)
        if isinstance(value, dict):
            return any(self.holds(each) for pair in value.items() for each in pair)
        return isinstance(value, list) and any(self.holds(each) for each in value)

    def schema(self, schema: Any, *, names: bool = True) -> Any:
        """A schema without marks; `names` says whether those of its members are looked at."""
        if schema is True:
            return self.anything()
        if not isinstance(schema, dict):
            return schema
        new = dict(schema)
        for key in ("$defs", "definitions", "properties", "patternProperties"):
            if isinstance(schema.get(key), dict):
                new[key] = {
                    name: each if name == OPEN and key[0] != "p" else self.schema(each)
                    for name, each in schema[key].items()
                }
        for key in (*_BRANCHES, "prefixItems"):
            if isinstance(schema.get(key), list):
                new[key] = [self.schema(each) for each in schema[key]]
        if isinstance(schema.get("oneOf"), list):
            one_of(new, schema["oneOf"], new["oneOf"])
        if "enum" in schema and isinstance(schema["enum"], list):
            new["enum"] = [value for value in schema["enum"] if not self.holds(value)]
            return new
        if "const" in schema:
            return False if self.holds(schema["const"]) else new
        if "$ref" in schema or any(key in schema for key in _BRANCHES):
            return new
        self._values(schema, new, names)
        return new

    def _values(self, schema: dict[str, Any], new: dict[str, Any], names: bool) -> None:
        given = schema.get("type", _TYPES)
        types = [given] if isinstance(given, str) else given
        new.setdefault("type", _TYPES)
        if "string" in types and not any(key in schema for key in _STRING_KEYWORDS):
            new["pattern"] = self.pattern
        if "array" in types:
            items = schema.get("items", True)
            new["items"] = self.schema(items) if not isinstance(items, list) else items
        if "object" in types and "unevaluatedProperties" not in schema:
            new["additionalProperties"] = self.schema(schema.get("additionalProperties", True))
            if names and new["additionalProperties"] is not False and "propertyNames" not in schema:
                new["propertyNames"] = {"pattern": self.pattern}
