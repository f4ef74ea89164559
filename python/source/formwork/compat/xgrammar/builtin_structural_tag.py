"""Structural tags of the models' own formats for reasoning and tool calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import TypeAdapter

from .openai_tool_call_schema import (
    AllowedToolChoiceParam,
    BuiltinToolChoiceParam,
    BuiltinToolParam,
    FunctionToolParam,
    NamedToolChoiceParam,
    ToolChoiceOptionParam,
    ToolParam,
)
from .structural_tag import StructuralTag

__all__ = [
    "get_builtin_structural_tag",
    "get_model_structural_tag",
    "normalize_tool_choice",
    "register_model_structural_tag",
]

SimplifiedToolChoice = Literal["auto", "required", "forced"]
BuiltinStructuralTagFn = Callable[..., StructuralTag]

_TOOL: TypeAdapter[Any] = TypeAdapter(ToolParam)
_CHOICE: TypeAdapter[Any] = TypeAdapter(ToolChoiceOptionParam)
_REASONING = ("enabled", "disabled", "auto")

_structural_tag_registry: dict[str, BuiltinStructuralTagFn] = {}


def register_model_structural_tag(name: str) -> Callable[[BuiltinStructuralTagFn], BuiltinStructuralTagFn]:
    """Decorates a function that makes the tags of a model, which `get_model_structural_tag` finds by `name`.

    It is called with the functions, the server's tools, the simplified choice and the reasoning mode, and by
    name with `any_order`, `exclude_special_tokens`, `max_whitespace_cnt` and `parallel_tool_calls`.
    """

    def decorator(make: BuiltinStructuralTagFn) -> BuiltinStructuralTagFn:
        _structural_tag_registry[name] = make
        return make

    return decorator


def get_model_structural_tag(
    model: str,
    tools: list[Any] | None = None,
    tool_choice: Any = "auto",
    reasoning: bool | str = "enabled",
    force_reasoning: bool = False,
    any_order: bool = False,
    exclude_special_tokens: bool = True,
    max_whitespace_cnt: int | None = None,
    parallel_tool_calls: bool = True,
) -> StructuralTag:
    """The structural tag of what a model writes: its reasoning, text and tool calls.

    Args:
        model: a registered name, such as llama, qwen_3 or harmony; another is an error that lists them.
        tools: tools of OpenAI's Chat Completions; a server's own have `type`, `name` and `parameters`.
        tool_choice: as there: auto, required, none, a function, a server's tool, or some allowed tools.
        reasoning: "enabled", "disabled", or "auto", by which the model chooses; True and False mean the
            first two.
        force_reasoning: has no effect, as in XGrammar.
        any_order: arguments in any order.
        exclude_special_tokens: free text holds none of the model's marks.
        max_whitespace_cnt: the most white space in a row within arguments.
        parallel_tool_calls: False: one call at most, and no text after it.

    Raises:
        ValueError: an unknown model, or arguments that don't fit each other.
    """
    if model not in _structural_tag_registry:
        raise ValueError(f"Unknown format type: {model}, supported types: {list(_structural_tag_registry)}")
    functions, builtins, choice = normalize_tool_choice(tools, tool_choice)
    reasoning = reasoning_mode(reasoning)
    if not isinstance(parallel_tool_calls, bool):
        raise ValueError(f"The 'parallel_tool_calls' argument must be a bool, not {parallel_tool_calls!r}.")
    return _structural_tag_registry[model](
        functions,
        builtins,
        choice,
        reasoning,
        any_order=any_order,
        exclude_special_tokens=exclude_special_tokens,
        max_whitespace_cnt=max_whitespace_cnt,
        parallel_tool_calls=parallel_tool_calls,
    )


def reasoning_mode(reasoning: bool | str) -> str:
    """A mode of reasoning by its name, or by True or False for the first two.

    Raises:
        ValueError: another name.
    """
    if isinstance(reasoning, bool):
        return "enabled" if reasoning else "disabled"
    if reasoning not in _REASONING:
        raise ValueError(
            "The 'reasoning' argument must be a bool or one of: 'enabled', 'disabled', 'auto', "
            f"not {reasoning!r}."
        )
    return reasoning


get_builtin_structural_tag = get_model_structural_tag


def normalize_tool_choice(
    tools: list[Any] | None = None, tool_choice: Any = "auto"
) -> tuple[list[FunctionToolParam], list[BuiltinToolParam], SimplifiedToolChoice]:
    """The functions and the server's tools that may be called, and whether one has to be.

    "forced" comes with exactly one tool; "none" is "auto" without tools.

    Raises:
        ValueError: tools is no list or has a malformed tool; a chosen tool isn't among them, or a server's
            tool not exactly once; a call is required and there is no tool.
    """
    if not isinstance(tools if tools is not None else [], list):
        raise ValueError("The 'tools' argument must be a list.")
    models = [
        tool if isinstance(tool, (FunctionToolParam, BuiltinToolParam)) else _TOOL.validate_python(tool)
        for tool in tools or []
    ]
    functions = [tool for tool in models if isinstance(tool, FunctionToolParam)]
    builtins = [tool for tool in models if isinstance(tool, BuiltinToolParam)]
    asked = "auto" if tool_choice is None else _CHOICE.validate_python(tool_choice)
    choice: SimplifiedToolChoice
    if isinstance(asked, AllowedToolChoiceParam):
        functions, builtins = _allowed(functions, builtins, asked)
        choice = asked.allowed_tools.mode
    elif isinstance(asked, NamedToolChoiceParam):
        name = asked.function.name
        functions, builtins = [tool for tool in functions if tool.function.name == name], []
        if not functions:
            raise ValueError(f"The tool with name '{name}' is not found in the tools list.")
        choice = "forced"
    elif isinstance(asked, BuiltinToolChoiceParam):
        functions, builtins = [], [tool for tool in builtins if tool.type == asked.type]
        if len(builtins) != 1:
            raise ValueError(
                f"Builtin tool choice must match exactly one builtin tool, got {len(builtins)} matches."
            )
        choice = "forced"
    elif asked == "none":
        functions, builtins, choice = [], [], "auto"
    else:
        choice = asked
    if choice == "required" and not (functions or builtins):
        raise ValueError("The 'tools' list is empty, which is not allowed when 'tool_choice' is 'required'.")
    if choice == "forced" and len(functions) + len(builtins) != 1:
        raise ValueError("Forced tool choice must resolve to exactly one tool.")
    return functions, builtins, choice


def _allowed(
    functions: Sequence[FunctionToolParam],
    builtins: Sequence[BuiltinToolParam],
    choice: AllowedToolChoiceParam,
) -> tuple[list[FunctionToolParam], list[BuiltinToolParam]]:
    names, types = set(), set()
    for tool in choice.allowed_tools.tools:
        if tool.type != "function":
            types.add(tool.type)
        elif tool.function is None:
            raise ValueError("Allowed function tool references must include 'function'.")
        else:
            names.add(tool.function.name)
    if missing := names - {tool.function.name for tool in functions}:
        raise ValueError(f"Allowed function tools are not found in the tools list: {sorted(missing)}.")
    if missing := types - {tool.type for tool in builtins}:
        raise ValueError(f"Allowed builtin tools are not found in the tools list: {sorted(missing)}.")
    return (
        [tool for tool in functions if tool.function.name in names],
        [tool for tool in builtins if tool.type in types],
    )


# The models' own formats register themselves.
from . import _models  # noqa: E402, F401


def __getattr__(name: str) -> Any:
    """`get_llama_structural_tag` and its like: the functions that are registered."""
    model = name.removeprefix("get_").removesuffix("_structural_tag")
    if name == f"get_{model}_structural_tag" and model in _structural_tag_registry:
        return _structural_tag_registry[model]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
