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


def closed(schema: Any, *, unevaluated: bool | None = None, own: bool = True) -> Any:
    """A copy in which what the schema doesn't name is forbidden: XGrammar's `strict_mode`.

    An object with `properties` or `patternProperties` allows no others unless it says so itself, and an array
    with `prefixItems` has no further items. A bare `{"type": "object"}` stays open, and what stands in `not`,
    `if` and `contains` as it is. Branches of `allOf`, and others beside `properties`, are closed together;
    what a `$ref` leads to, and all branches in drafts 7 and older, each for itself.

    Args:
        schema: the schema.
        unevaluated: whether the draft has `unevaluatedProperties`; None: as `$schema` says.
        own: False for a branch that another schema closes.
    """
    if not isinstance(schema, dict):
        return schema
    if unevaluated is None:
        unevaluated = not _OLD_DRAFTS.search(str(schema.get("$schema", "")))
    named = _names_members(schema)
    together = unevaluated and ("allOf" in schema or (named and bool(_BRANCHES & schema.keys())))
    new = dict(schema)
    for key in _ONE:
        if isinstance(schema.get(key), dict):
            new[key] = closed(schema[key], unevaluated=unevaluated)
    for key in _LISTS:
        if isinstance(schema.get(key), list):
            each_own = not (together and key in _BRANCHES) and (own or key not in _BRANCHES)
            new[key] = [closed(one, unevaluated=unevaluated, own=each_own) for one in schema[key]]
    for key in _BY_NAME:
        if isinstance(schema.get(key), dict):
            new[key] = {name: closed(one, unevaluated=unevaluated) for name, one in schema[key].items()}
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
