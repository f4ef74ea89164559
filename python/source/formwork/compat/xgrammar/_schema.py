"""JSON Schemas as XGrammar takes them: what its `strict_mode` means, in keywords of JSON Schema."""

from __future__ import annotations

import json
import re
from typing import Any

from .exception import InvalidJSONError

# Keywords whose value is a schema, a list of schemas, or schemas by name, for the value itself or a part of it.
_ONE = (
    "additionalProperties",
    "additionalItems",
    "items",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions")
# Keywords whose schemas name members of the same value.
_BRANCHES = {"allOf", "anyOf", "oneOf", "$ref", "if", "dependentSchemas"}
# Keywords whose schemas are asked about a value that others describe.
_CONDITIONS = ("not", "if", "contains")
# Keywords whose value is schemas by name.
_MAPS = (*_BY_NAME, "dependentSchemas", "dependencies")
# Keywords whose values aren't schemas, whatever they hold.
_VALUES = ("const", "enum", "default", "examples")
# Under this name the schema stands beside itself as it was.
OPEN = "formwork.open"
_SAYS_MEMBERS = {"additionalProperties", "unevaluatedProperties"}
_SAYS_ITEMS = {"additionalItems", "unevaluatedItems"}
# Drafts that have no `unevaluated...`.
_OLD_DRAFTS = re.compile(r"draft-0[3-7]")


def schema_text(schema: Any) -> str:
    """A schema as JSON text: of a str, a dict, a bool or a pydantic model.

    Raises:
        TypeError: json.dumps doesn't take it.
        ValueError: it is none of these.
    """
    if isinstance(schema, str):
        return schema
    if hasattr(schema, "model_json_schema"):
        schema = schema.model_json_schema()
    if not isinstance(schema, (dict, bool)):
        raise ValueError(
            f"schema must be JSON as a str, a dict, a bool or a pydantic model, not {type(schema).__name__}"
        )
    return json.dumps(schema, ensure_ascii=False)


def closed(schema: Any, *, in_tags: bool = False) -> Any:
    """A copy in which what the schema doesn't name is forbidden: XGrammar's `strict_mode`.

    An object with `properties` or `patternProperties` allows no others unless it says so itself, and an array
    with `prefixItems` has no further items. A bare `{"type": "object"}` stays open. Branches of `allOf`, and others
    beside `properties`, are closed together; what a `$ref` leads to, and all branches in drafts 7 and older, each for
    itself.

    The copy allows nothing that the schema doesn't. So what stands in `not`, `if` and `contains` means what it meant,
    through references too, and of `oneOf` exactly one branch holds as it stood.

    Args:
        schema: the schema.
        in_tags: whether the members of the whole object are written as tags. Then the engine takes `oneOf` of it
            only where a listed value tells the branches apart, which doesn't depend on what is forbidden.
    """
    if not isinstance(schema, dict):
        return schema
    closing = _Closing(schema)
    new: dict[str, Any] = closing.schema(schema, one_of_is_apart=in_tags)
    if closing.refers_to_open:
        whole = {key: value for key, value in schema.items() if key not in ("$schema", "$id", "id")}
        named = new.get(closing.definitions)
        new[closing.definitions] = {**(named if isinstance(named, dict) else {}), OPEN: closing.as_it_was(whole)}
    return new


class _Closing:
    """One schema's closing."""

    def __init__(self, root: dict[str, Any]) -> None:
        # Older drafts have no `unevaluatedProperties`.
        self.unevaluated = not _OLD_DRAFTS.search(str(root.get("$schema", "")))
        self.definitions = "$defs" if self.unevaluated else "definitions"
        self.refers_to_open = False

    def schema(self, schema: Any, *, own: bool = True, one_of_is_apart: bool = False) -> Any:
        """A closed copy; `own` is False for a branch that another schema closes."""
        if not isinstance(schema, dict):
            return schema
        named = _names_members(schema)
        together = self.unevaluated and ("allOf" in schema or (named and bool(_BRANCHES & schema.keys())))
        new = dict(schema)
        for key in _ONE:
            if isinstance(schema.get(key), dict):
                new[key] = self.schema(schema[key])
        for key in _LISTS:
            if isinstance(schema.get(key), list):
                each_own = not (together and key in _BRANCHES) and (own or key not in _BRANCHES)
                new[key] = [self.schema(one, own=each_own) for one in schema[key]]
        for key in _BY_NAME:
            if isinstance(schema.get(key), dict):
                new[key] = {name: self.schema(one) for name, one in schema[key].items()}
        for key in _CONDITIONS:
            if key in schema:
                new[key] = self.as_it_was(schema[key])
        if isinstance(schema.get("oneOf"), list) and not one_of_is_apart:
            one_of(new, self.as_it_was(schema["oneOf"]), new["oneOf"])
        if own and not _SAYS_MEMBERS & schema.keys():
            if together and (named or _branch_names_members(schema)):
                new["unevaluatedProperties"] = False
            elif named and not together:
                new["additionalProperties"] = False
        if not _SAYS_ITEMS & schema.keys():
            if isinstance(schema.get("items"), list):
                new["additionalItems"] = False
            elif "prefixItems" in schema and "items" not in schema:
                new["items"] = False
        return new

    def as_it_was(self, part: Any) -> Any:
        """A copy of a part of the schema that isn't closed: references lead to the whole schema as it was."""
        if isinstance(part, list):
            return [self.as_it_was(one) for one in part]
        if not isinstance(part, dict):
            return part
        new = dict(part)
        for key, value in part.items():
            if key in _MAPS and isinstance(value, dict):
                new[key] = {name: self.as_it_was(one) for name, one in value.items()}
            elif key not in _VALUES:
                new[key] = self.as_it_was(value)
        reference = part.get("$ref")
        if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
            new["$ref"] = f"#/{self.definitions}/{OPEN}{reference[1:]}"
            self.refers_to_open = True
        return new


def one_of(schema: dict[str, Any], branches: list[Any], narrower: list[Any]) -> None:
    """Puts `oneOf` into a schema: exactly one branch holds, and that one in its narrower form."""
    schema["oneOf"] = branches
    if narrower != branches:
        schema["allOf"] = [*schema.get("allOf", []), {"anyOf": narrower}]


def _names_members(schema: dict[str, Any]) -> bool:
    return "properties" in schema or "patternProperties" in schema


def _branch_names_members(schema: Any) -> bool:
    return isinstance(schema, dict) and any(
        isinstance(one, dict) and (_names_members(one) or _branch_names_members(one))
        for key in ("allOf", "anyOf", "oneOf")
        for one in (schema[key] if isinstance(schema.get(key), list) else [])
    )


def closed_text(schema: Any) -> str:
    """JSON text of `closed`.

    Raises:
        InvalidJSONError: a str that is no JSON.
    """
    text = schema_text(schema)
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidJSONError(f"the schema is no JSON: {error}") from None
    return json.dumps(closed(value), ensure_ascii=False)
