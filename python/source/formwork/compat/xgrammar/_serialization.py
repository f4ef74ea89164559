"""JSON text with a version: what `serialize_json` writes and `deserialize_json` reads."""

from __future__ import annotations

import json
from typing import Any

from .config import get_serialization_version
from .exception import DeserializeFormatError, DeserializeVersionError, InvalidJSONError

_VERSION = "__VERSION__"


def written(kind: str, fields: dict[str, Any]) -> str:
    """JSON text of an object's fields."""
    return json.dumps({"kind": kind, **fields, _VERSION: get_serialization_version()})


def read(kind: str, text: str, fields: dict[str, type]) -> dict[str, Any]:
    """The fields of an object, checked.

    Raises:
        InvalidJSONError: the text is no JSON object.
        DeserializeVersionError: another package or version wrote it.
        DeserializeFormatError: another kind of object, or a field that is missing or of another type.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidJSONError(f"the text to deserialize is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidJSONError(f"the text to deserialize is a JSON {type(value).__name__}, not an object")
    version = value.get(_VERSION)
    if version != get_serialization_version():
        raise DeserializeVersionError(
            f"the text has version {version!r}, but this package reads {get_serialization_version()!r} only: "
            "serialize it by this package"
        )
    if value.get("kind") != kind:
        raise DeserializeFormatError(f"the text is of a {value.get('kind')!r}, not of a {kind!r}")
    for name, its_type in fields.items():
        if not isinstance(value.get(name), its_type):
            raise DeserializeFormatError(f"the field {name!r} must be of type {its_type.__name__}")
    return value
