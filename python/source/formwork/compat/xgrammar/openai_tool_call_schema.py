"""Tools and the choice among them, as in OpenAI's Chat Completions, as pydantic models."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

__all__ = [
    "AllowedToolChoiceParam",
    "AllowedToolRef",
    "AllowedToolsParam",
    "BuiltinToolChoiceParam",
    "BuiltinToolParam",
    "FunctionDefinition",
    "FunctionToolParam",
    "NamedToolChoiceFunction",
    "NamedToolChoiceParam",
    "ToolChoiceOptionParam",
    "ToolParam",
]


class FunctionDefinition(BaseModel):
    """A function: its name, and a JSON Schema of its arguments (None: any)."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionToolParam(BaseModel):
    """A function as a tool."""

    type: Literal["function"] = "function"
    function: FunctionDefinition


class BuiltinToolParam(BaseModel):
    """A tool that a server runs: its type, the name that the model writes (else the type), its arguments."""

    type: str
    name: str | None = None
    parameters: dict[str, Any] | None = None


class NamedToolChoiceFunction(BaseModel):
    """A function by its name."""

    name: str


class NamedToolChoiceParam(BaseModel):
    """The choice of one function."""

    type: Literal["function"] = "function"
    function: NamedToolChoiceFunction


class BuiltinToolChoiceParam(BaseModel):
    """The choice of one of a server's tools, by its type; `name` isn't looked at."""

    type: str
    name: str | None = None


class AllowedToolRef(BaseModel):
    """A tool that may be called: a function by its name, a server's tool by its type."""

    type: str
    function: NamedToolChoiceFunction | None = None
    name: str | None = None


class AllowedToolsParam(BaseModel):
    """Tools that may be called, and whether one has to be."""

    mode: Literal["auto", "required"]
    tools: list[AllowedToolRef]


class AllowedToolChoiceParam(BaseModel):
    """The choice among some of the tools."""

    type: Literal["allowed_tools"] = "allowed_tools"
    allowed_tools: AllowedToolsParam


ToolParam = FunctionToolParam | BuiltinToolParam
ToolChoiceOptionParam = (
    Literal["none", "auto", "required"]
    | NamedToolChoiceParam
    | AllowedToolChoiceParam
    | BuiltinToolChoiceParam
)
