"""A model's format for reasoning and tool calls, and the structural tags that are made of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from .builtin_structural_tag import reasoning_mode
from .openai_tool_call_schema import BuiltinToolParam, FunctionToolParam
from .structural_tag import (
    AnyTextFormat,
    ConstStringFormat,
    JSONSchemaFormat,
    OptionalFormat,
    OrFormat,
    RegexFormat,
    SequenceFormat,
    StructuralTag,
    TagFormat,
    TagsWithSeparatorFormat,
    TriggeredTagsFormat,
)

THINK = ("<think>", "</think>")
FORCED = "Forced tool choice must resolve to exactly one tool."


@dataclasses.dataclass(frozen=True)
class Options:
    """What a caller asks of every tag."""

    any_order: bool = False
    exclude_special_tokens: bool = True
    max_whitespace_cnt: int | None = None
    parallel_tool_calls: bool = True

    def text(self, excludes: Sequence[str]) -> AnyTextFormat:
        """Free text without these marks."""
        return AnyTextFormat(excludes=self.excludes(excludes))

    def excludes(self, marks: Sequence[str]) -> list[str]:
        """The marks, where they are to be excluded."""
        return list(marks) if self.exclude_special_tokens else []

    def arguments(
        self, parameters: dict[str, Any] | bool, style: Any = "json", excludes: Sequence[str] = ()
    ) -> JSONSchemaFormat:
        """A call's arguments."""
        return JSONSchemaFormat(
            json_schema=parameters,
            style=style,
            any_order=self.any_order,
            max_whitespace_cnt=self.max_whitespace_cnt,
            excludes=self.excludes(excludes),
        )


def parameters(tool: FunctionToolParam | BuiltinToolParam) -> dict[str, Any] | bool:
    """A tool's schema; any arguments where there is none, or where it isn't strict."""
    if isinstance(tool, FunctionToolParam):
        own = None if tool.function.strict is False else tool.function.parameters
    else:
        own = tool.parameters
    return True if own is None else own


@dataclasses.dataclass(frozen=True)
class Model:
    """A model's format.

    Free text goes on until `trigger`, which begins a call or, where `section` is, a section of calls.
    """

    # What begins a call: {name} is the function's, {n} a number.
    begin: str
    # What ends a call.
    end: str
    # What free text runs into.
    trigger: str
    style: str = "json"
    # What stands around all calls, and between two of them.
    section: tuple[str, str] | None = None
    separator: str = ""
    # What stands before a section that has to come.
    lead: str = ""
    # How a section that has to come is written down: as texts, as a tag, or as triggered tags.
    required: str = "texts"
    # What begins and ends reasoning, and what follows it.
    think: tuple[str, str] | None = THINK
    think_suffix: str = ""
    # The prompt has what begins reasoning already.
    prompt_ends_with_think: bool = True
    # Marks that aren't in reasoning, in text without tools, and in text beside calls.
    think_excludes: tuple[str, ...] = THINK
    excludes: tuple[str, ...] = THINK
    call_excludes: tuple[str, ...] = THINK
    # Marks that aren't in text without tools, whatever a caller allows.
    never: tuple[str, ...] = ()
    # Reasoning that begins in the prompt is free of exclusions.
    free_reasoning: bool = False
    # Texts that come instead of reasoning.
    without_reasoning: tuple[str, ...] = ()
    # The mark that ends reasoning may stand alone.
    bare_think_end: bool = False
    # The name in the error where a server's tools are refused.
    refuses_builtins: str | None = None

    def call(self, tool: FunctionToolParam, options: Options) -> TagFormat:
        """A call of a function."""
        begin = self.begin.replace("{name}", tool.function.name)
        content: Any = options.arguments(parameters(tool), self.style)
        if "{n}" in self.begin:
            before, after = self.begin.split("{n}")
            begin = before.replace("{name}", tool.function.name)
            after = after.replace("{name}", tool.function.name)
            content = SequenceFormat(
                elements=[RegexFormat(pattern=r"\d+"), ConstStringFormat(value=after), content]
            )
        return TagFormat(begin=begin, content=content, end=self.end)

    def several(self, calls: Sequence[TagFormat], options: Options) -> TagsWithSeparatorFormat:
        """Calls within a section."""
        return TagsWithSeparatorFormat(
            tags=list(calls),
            separator=self.separator,
            at_least_one=True,
            stop_after_first=not options.parallel_tool_calls,
        )

    def triggered(self, calls: Sequence[TagFormat], options: Options, *, at_least_one: bool) -> Any:
        """Text with calls, or sections of calls, in it."""
        tags = list(calls)
        if self.section is not None:
            begin, end = self.section
            tags = [TagFormat(begin=begin, content=self.several(calls, options), end=end)]
        return TriggeredTagsFormat(
            triggers=[self.trigger],
            tags=tags,
            at_least_one=at_least_one,
            stop_after_first=not options.parallel_tool_calls,
            excludes=options.excludes(self.call_excludes),
        )

    def forced(self, call: TagFormat) -> Any:
        """One call and nothing else."""
        if self.section is None:
            return call
        begin, end = self.section
        if self.required == "tag":
            return TagFormat(begin=f"{begin}{call.begin}", content=call.content, end=f"{call.end}{end}")
        if self.required == "triggered":
            return TagFormat(begin=begin, content=call, end=end)
        return SequenceFormat(
            elements=[ConstStringFormat(value=self.lead + begin), call, ConstStringFormat(value=end)]
        )

    def needed(self, calls: Sequence[TagFormat], options: Options) -> Any:
        """One call or more."""
        if self.section is None or self.required == "triggered":
            return self.triggered(calls, options, at_least_one=True)
        (begin, end), several = self.section, self.several(calls, options)
        if self.required == "tag":
            return TagFormat(begin=begin, content=several, end=end)
        return SequenceFormat(
            elements=[ConstStringFormat(value=self.lead + begin), several, ConstStringFormat(value=end)]
        )

    def reasoning(self, mode: str, options: Options) -> list[Any]:
        """What stands before text and calls."""
        if self.think is None:
            return []
        if mode == "disabled":
            return [ConstStringFormat(value=text) for text in self.without_reasoning]
        begin, end = self.think
        goes_on = mode == "enabled" and self.prompt_ends_with_think
        free = mode == "enabled" and self.free_reasoning
        block: Any = TagFormat(
            begin="" if goes_on else begin,
            content=options.text(() if free else self.think_excludes),
            end=end,
        )
        if self.think_suffix:
            block = SequenceFormat(elements=[block, ConstStringFormat(value=self.think_suffix)])
        if mode == "auto":
            if self.bare_think_end:
                block = OrFormat(elements=[block, ConstStringFormat(value=end)])
            block = OptionalFormat(content=block)
        return [block]

    def structural_tag(
        self,
        tools: Sequence[FunctionToolParam] | None = None,
        builtin_tools: Sequence[BuiltinToolParam] | None = None,
        tool_choice: str = "auto",
        reasoning: bool | str = "enabled",
        **options: Any,
    ) -> StructuralTag:
        """The whole tag; a server's tools are left out, or refused.

        Raises:
            ValueError: a server's tool where the model has none; no function where a call has to come.
        """
        if builtin_tools and self.refuses_builtins is not None:
            raise ValueError(f"{self.refuses_builtins} does not support builtin tools.")
        own = Options(**options)
        calls = [self.call(tool, own) for tool in tools or []]
        if tool_choice == "forced":
            if not calls:
                raise ValueError(FORCED)
            suffix = self.forced(calls[0])
        elif tool_choice == "required":
            if not calls:
                raise ValueError("Required tool choice needs at least one function tool.")
            suffix = self.needed(calls, own)
        elif calls:
            suffix = self.triggered(calls, own, at_least_one=False)
        else:
            suffix = AnyTextFormat(excludes=[*own.excludes(self.excludes), *self.never])
        prefix = self.reasoning(reasoning_mode(reasoning), own)
        return StructuralTag(format=SequenceFormat(elements=[*prefix, suffix]) if prefix else suffix)
