"""Structural tags as pydantic models: free text, tags, and what stands in them.

docs/grammars.md says what each format means.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

__all__ = [
    "AnyTextFormat",
    "AnyTokensFormat",
    "ConstStringFormat",
    "DispatchFormat",
    "ExcludeTokenFormat",
    "Format",
    "GrammarFormat",
    "JSONSchemaFormat",
    "OptionalFormat",
    "OrFormat",
    "PlusFormat",
    "QwenXMLParameterFormat",
    "RegexFormat",
    "RepeatFormat",
    "SequenceFormat",
    "StarFormat",
    "StructuralTag",
    "StructuralTagItem",
    "TagFormat",
    "TagsWithSeparatorFormat",
    "TokenDispatchFormat",
    "TokenFormat",
    "TokenTriggeredTagsFormat",
    "TriggeredTagsFormat",
]

_Count = Annotated[int | None, Field(ge=0, le=(1 << 31) - 1)]
_Token = int | str


class ConstStringFormat(BaseModel):
    """A text."""

    type: Literal["const_string"] = "const_string"
    value: str


class JSONSchemaFormat(BaseModel):
    """A value under a JSON Schema, as JSON or in a model's tags (`style`)."""

    type: Literal["json_schema"] = "json_schema"
    json_schema: bool | dict[str, Any]
    style: Literal[
        "json",
        "qwen_xml",
        "minimax_xml",
        "minimax_m3_xml",
        "deepseek_xml",
        "glm_xml",
        "cohere_xml",
        "kimi_k3_xml",
        "deepseek_v4_1_xml",
    ] = "json"
    any_order: bool = False
    max_whitespace_cnt: int | None = None
    excludes: list[str] = []


class AnyTextFormat(BaseModel):
    """Free text without what is excluded."""

    type: Literal["any_text"] = "any_text"
    excludes: list[str] = []
    max_tokens: _Count = None
    max_chars: _Count = None


class TokenFormat(BaseModel):
    """A token, by its id or text."""

    type: Literal["token"] = "token"
    token: _Token


class ExcludeTokenFormat(BaseModel):
    """Any token but these."""

    type: Literal["exclude_token"] = "exclude_token"
    exclude_tokens: list[_Token] = []


class AnyTokensFormat(BaseModel):
    """Tokens, none of them one of these."""

    type: Literal["any_tokens"] = "any_tokens"
    exclude_tokens: list[_Token] = []
    max_tokens: _Count = None


class GrammarFormat(BaseModel):
    """A text of a grammar in EBNF or Lark."""

    type: Literal["grammar"] = "grammar"
    grammar: str


class RegexFormat(BaseModel):
    """A text that a regular expression matches as a whole."""

    type: Literal["regex"] = "regex"
    pattern: str


class SequenceFormat(BaseModel):
    """One after the other."""

    type: Literal["sequence"] = "sequence"
    elements: list[Format]


class OrFormat(BaseModel):
    """Any one of them."""

    type: Literal["or"] = "or"
    elements: list[Format]


class TagFormat(BaseModel):
    """`begin`, `content`, and one of the `end`s."""

    type: Literal["tag"] = "tag"
    begin: str | TokenFormat
    content: Format
    end: str | list[str] | TokenFormat


class TriggeredTagsFormat(BaseModel):
    """Free text in which each trigger begins one of the tags."""

    type: Literal["triggered_tags"] = "triggered_tags"
    triggers: list[str]
    tags: list[TagFormat]
    at_least_one: bool = False
    stop_after_first: bool = False
    excludes: list[str] = []


class TokenTriggeredTagsFormat(BaseModel):
    """Tokens among which each trigger begins one of the tags."""

    type: Literal["token_triggered_tags"] = "token_triggered_tags"
    trigger_tokens: list[_Token]
    tags: list[TagFormat]
    exclude_tokens: list[_Token] = []
    at_least_one: bool = False
    stop_after_first: bool = False


class TagsWithSeparatorFormat(BaseModel):
    """Tags with a text between each two of them."""

    type: Literal["tags_with_separator"] = "tags_with_separator"
    tags: list[TagFormat]
    separator: str
    at_least_one: bool = False
    stop_after_first: bool = False


class OptionalFormat(BaseModel):
    """`content` once or not at all."""

    type: Literal["optional"] = "optional"
    content: Format


class PlusFormat(BaseModel):
    """`content` once or more."""

    type: Literal["plus"] = "plus"
    content: Format


class StarFormat(BaseModel):
    """`content` any number of times."""

    type: Literal["star"] = "star"
    content: Format


class RepeatFormat(BaseModel):
    """`content` from `min` to `max` times; -1 is no bound."""

    type: Literal["repeat"] = "repeat"
    min: int
    max: int
    content: Format


class DispatchFormat(BaseModel):
    """Free text in which each pattern is followed by its format."""

    type: Literal["dispatch"] = "dispatch"
    rules: list[tuple[str, Format]]
    loop: bool = True
    excludes: list[str] = []


class TokenDispatchFormat(BaseModel):
    """Tokens among which each pattern is followed by its format."""

    type: Literal["token_dispatch"] = "token_dispatch"
    rules: list[tuple[_Token, Format]]
    loop: bool = True
    exclude_tokens: list[_Token] = []


class QwenXMLParameterFormat(BaseModel):
    """The older name of JSONSchemaFormat with `style="qwen_xml"`."""

    type: Literal["qwen_xml_parameter"] = "qwen_xml_parameter"
    json_schema: bool | dict[str, Any]


Format = Annotated[
    AnyTextFormat
    | ConstStringFormat
    | JSONSchemaFormat
    | GrammarFormat
    | RegexFormat
    | QwenXMLParameterFormat
    | OrFormat
    | SequenceFormat
    | TagFormat
    | TriggeredTagsFormat
    | TokenTriggeredTagsFormat
    | TagsWithSeparatorFormat
    | OptionalFormat
    | PlusFormat
    | StarFormat
    | TokenFormat
    | ExcludeTokenFormat
    | AnyTokensFormat
    | RepeatFormat
    | DispatchFormat
    | TokenDispatchFormat,
    Field(discriminator="type"),
]
"""Any of the formats, told apart by `type`."""


class StructuralTagItem(BaseModel):
    """A tag of the older kind, whose content is JSON."""

    begin: str
    schema_: str | type[BaseModel] | dict[str, Any] = Field(alias="schema")
    end: str


class StructuralTag(BaseModel):
    """A whole structural tag."""

    type: Literal["structural_tag"] = "structural_tag"
    format: Format

    @staticmethod
    def from_legacy_structural_tag(tags: list[StructuralTagItem], triggers: list[str]) -> StructuralTag:
        """From tags of the older kind and their triggers."""
        return StructuralTag(
            format=TriggeredTagsFormat(
                triggers=triggers,
                tags=[
                    TagFormat(
                        begin=tag.begin, content=JSONSchemaFormat(json_schema=_schema(tag)), end=tag.end
                    )
                    for tag in tags
                ],
            )
        )

    @staticmethod
    def from_json(json_str: str | dict[str, Any]) -> StructuralTag:
        """From JSON as a str or a dict.

        Raises:
            ValueError: it is neither, or no structural tag.
        """
        if isinstance(json_str, str):
            return StructuralTag.model_validate_json(json_str)
        if isinstance(json_str, dict):
            return StructuralTag.model_validate(json_str)
        raise ValueError(f"expected JSON as a str or a dict, not {type(json_str).__name__}")


def _schema(tag: StructuralTagItem) -> Any:
    if isinstance(tag.schema_, str):
        return json.loads(tag.schema_)
    if isinstance(tag.schema_, dict):
        return tag.schema_
    return tag.schema_.model_json_schema()


for _model in (
    SequenceFormat,
    OrFormat,
    TagFormat,
    TriggeredTagsFormat,
    TokenTriggeredTagsFormat,
    TagsWithSeparatorFormat,
    OptionalFormat,
    PlusFormat,
    StarFormat,
    RepeatFormat,
    DispatchFormat,
    TokenDispatchFormat,
    StructuralTag,
):
    _model.model_rebuild()
