"""Structural tags as the engine reads them."""

from __future__ import annotations

from typing import Any

from formwork.grammar.captures import without_reports

from ._excludes import without_marks
from ._lark_names import with_any_space
from ._schema import closed
from .exception import InvalidStructuralTagError

# Fields that mean nothing where they are empty, and that the engine may not know.
_UNSET: dict[str, Any] = {"excludes": [], "max_whitespace_cnt": None, "max_tokens": None, "max_chars": None}
# Any number of signs.
_UNBOUNDED = -1
_CONTENTS = ("content", "format")
_LISTS = ("elements", "tags")


def engine_tag(value: Any) -> Any:
    """A copy of a tag, or of a part of one, for the engine.

    Schemas are strict, as always in XGrammar's tags; fields without effect are left out. What is malformed
    stays, for the engine to say so.
    """
    if not isinstance(value, dict):
        return value
    new = {key: one for key, one in value.items() if key not in _UNSET or one not in (_UNSET[key], [], None)}
    for key in _CONTENTS:
        if key in new:
            new[key] = engine_tag(new[key])
    for key in _LISTS:
        if isinstance(new.get(key), list):
            new[key] = [engine_tag(one) for one in new[key]]
    if isinstance(new.get("rules"), list):
        new["rules"] = [
            [rule[0], engine_tag(rule[1])] if isinstance(rule, (list, tuple)) and len(rule) == 2 else rule
            for rule in new["rules"]
        ]
    if new.get("type") == "grammar" and isinstance(new.get("grammar"), str):
        source = without_reports(new["grammar"])
        new["grammar"] = source if "::=" in source else with_any_space(source)
    if new.get("type") in ("json_schema", "qwen_xml_parameter") and "json_schema" in new:
        style = new.get("style", "json") if new["type"] == "json_schema" else "qwen_xml"
        new["json_schema"] = closed(new["json_schema"], in_tags=style != "json")
        if style == "json":
            new.setdefault("max_whitespace_cnt", _UNBOUNDED)
        if new["json_schema"] is True and style != "json":
            new["json_schema"] = {"type": "object"}
        excludes = new.pop("excludes", None)
        if excludes:
            if not isinstance(excludes, list) or not all(isinstance(mark, str) and mark for mark in excludes):
                raise InvalidStructuralTagError(
                    "Invalid structural tag error: excludes must be a list of strings that aren't empty, not "
                    f"{excludes!r:.200}"
                )
            new["json_schema"] = without_marks(new["json_schema"], excludes, root_is_json=style == "json")
    return new
