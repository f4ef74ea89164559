"""JSON Schemas as XGrammar takes them: what its `strict_mode` means, in keywords of JSON Schema."""

from __future__ import annotations

import json
from typing import Any

from .exception import InvalidJSONError

# Keywords whose value is a schema, a list of schemas, or schemas by name, for the value itself or a part of it.
_ONE = ("additionalProperties", "items", "additionalItems", "unevaluatedProperties", "unevaluatedItems", "propertyNames")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions")


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


def closed(schema: Any) -> Any:
    """A copy in which what the schema doesn't name is forbidden: XGrammar's `strict_mode`.

    An object with `properties` or `patternProperties` allows no others unless it says so itself, and an array
    with `prefixItems` has no further items. A bare `{"type": "object"}` stays open, and what stands in `not`,
    `if` and `contains` as it is.
    """
    if not isinstance(schema, dict):
        return schema
    new = dict(schema)
    for key in _ONE:
        if isinstance(schema.get(key), dict):
            new[key] = closed(schema[key])
    for key in _LISTS:
        if isinstance(schema.get(key), list):
            new[key] = [closed(one) for one in schema[key]]
    for key in _BY_NAME:
        if isinstance(schema.get(key), dict):
            new[key] = {name: closed(one) for name, one in schema[key].items()}
    says = "additionalProperties" in schema or "unevaluatedProperties" in schema
    if ("properties" in schema or "patternProperties" in schema) and not says:
        # Branches name members of their own: these count as named.
        branches = any(key in schema for key in ("allOf", "anyOf", "oneOf", "$ref", "if"))
        new["unevaluatedProperties" if branches else "additionalProperties"] = False
    if "prefixItems" in schema and not {"items", "additionalItems", "unevaluatedItems"} & schema.keys():
        new["items"] = False
    return new


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
