"""How each model writes reasoning and tool calls: a table, and what is made of a row of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from .builtin_structural_tag import reasoning_mode, register_model_structural_tag
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

_THINK = ("<think>", "</think>")
_FORCED = "Forced tool choice must resolve to exactly one tool."


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
    think: tuple[str, str] | None = _THINK
    think_suffix: str = ""
    # The prompt has what begins reasoning already.
    prompt_ends_with_think: bool = True
    # Marks that aren't in reasoning, in text without tools, and in text beside calls.
    think_excludes: tuple[str, ...] = _THINK
    excludes: tuple[str, ...] = _THINK
    call_excludes: tuple[str, ...] = _THINK
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
            tags=calls,
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
            return TagFormat(begin=begin + call.begin, content=call.content, end=call.end + end)
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
                raise ValueError(_FORCED)
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


_DSML = "<｜DSML｜"
_DSML_END = "</｜DSML｜"
_MIMO = (*_THINK, "</tool_call>", "<function=")
_GLM = ("</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
_M3 = "]<]minimax[>["
_M3_EXCLUDES = ("<mm:think>", "</mm:think>", f"{_M3}</tool_call>", f"{_M3}<invoke", f"{_M3}</invoke>")
_COHERE = ("<|START_THINKING|>", "<|END_THINKING|>")
_QWEN_CODER = Model(
    begin="<tool_call>\n<function={name}>\n",
    end="\n</function>\n</tool_call>",
    trigger="<tool_call>\n<function=",
    style="qwen_xml",
    think_suffix="\n\n",
)


def _dsml(section: str, space: str, style: str, **more: Any) -> Model:
    """DeepSeek's later formats, which differ in a word, a space and a style."""
    return Model(
        begin=f'{_DSML}{space}invoke name="{{name}}">\n',
        end=f"{_DSML_END}{space}invoke>\n",
        trigger=f"{_DSML}{section}>",
        style=style,
        section=(f"{_DSML}{section}>\n", f"{_DSML_END}{section}>"),
        lead="\n\n",
        **more,
    )


MODELS = {
    "llama": Model(
        begin='{"name": "{name}", "parameters": ', end="}", trigger='{"name": ', think=None
    ),
    "kimi": Model(
        begin="<|tool_call_begin|>functions.{name}:{n}<|tool_call_argument_begin|>",
        end="<|tool_call_end|>",
        trigger="<|tool_calls_section_begin|>",
        section=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        call_excludes=(*_THINK, "<|tool_call_begin|>"),
        free_reasoning=True,
    ),
    "deepseek_r1": Model(
        begin="<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n",
        end="\n```<｜tool▁call▁end｜>",
        trigger="<｜tool▁calls▁begin｜>",
        section=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
        separator="\n",
        required="tag",
    ),
    "deepseek_v3_1": Model(
        begin="<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>",
        end="<｜tool▁call▁end｜>",
        trigger="<｜tool▁calls▁begin｜>",
        section=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
        required="tag",
    ),
    "qwen_3_coder": _QWEN_CODER,
    "qwen_3_5": _QWEN_CODER,
    "mimo": Model(
        begin="<tool_call><function={name}>",
        end="</function></tool_call>",
        trigger="<tool_call>",
        style="qwen_xml",
        prompt_ends_with_think=False,
        think_excludes=("<tool_call>", *_MIMO),
        excludes=("<tool_call>", *_MIMO),
        call_excludes=_MIMO,
        refuses_builtins="MiMo",
    ),
    "qwen_3": Model(
        begin='<tool_call>\n{"name": "{name}", "arguments": ',
        end="}\n</tool_call>",
        trigger="<tool_call>",
        think_suffix="\n\n",
    ),
    "deepseek_v3_2": _dsml("function_calls", "", "deepseek_xml"),
    "minimax": Model(
        begin='<invoke name="{name}">\n',
        end="</invoke>\n",
        trigger="<minimax:tool_call>",
        style="minimax_xml",
        section=("<minimax:tool_call>\n", "</minimax:tool_call>"),
        lead="\n",
        think_suffix="\n\n",
        free_reasoning=True,
        without_reasoning=("\n</think>\n\n", "\n\n"),
    ),
    "minimax_m3": Model(
        begin=f'{_M3}<invoke name="{{name}}">',
        end=f"{_M3}</invoke>\n",
        trigger=f"{_M3}<tool_call>",
        style="minimax_m3_xml",
        section=(f"{_M3}<tool_call>\n", f"{_M3}</tool_call>"),
        required="triggered",
        think=("<mm:think>", "</mm:think>"),
        think_excludes=(f"{_M3}<tool_call>", *_M3_EXCLUDES),
        excludes=(f"{_M3}<tool_call>", *_M3_EXCLUDES),
        call_excludes=_M3_EXCLUDES,
        bare_think_end=True,
        refuses_builtins="MiniMax M3",
    ),
    "glm_4_7": Model(
        begin="<tool_call>{name}",
        end="</tool_call>",
        trigger="<tool_call>",
        style="glm_xml",
        think_excludes=(*_THINK, "<tool_call>", *_GLM),
        excludes=(*_THINK, "<tool_call>", *_GLM),
        call_excludes=(*_THINK, *_GLM),
    ),
    "deepseek_v4": _dsml("tool_calls", "", "deepseek_xml"),
    "deepseek_v4_1": _dsml(" calls", " ", "deepseek_v4_1_xml", never=(f"{_DSML} calls>",)),
    "cohere": Model(
        begin='<cofl:tool_call id="{n}" name="{name}">',
        end="</cofl:tool_call>",
        trigger="<cofl:tool_calls>",
        style="cohere_xml",
        section=("<cofl:tool_calls>", "</cofl:tool_calls>"),
        think=_COHERE,
        think_excludes=_COHERE,
        excludes=_COHERE,
        call_excludes=_COHERE,
        free_reasoning=True,
    ),
    "exaone": Model(
        begin='<tool_call>{"name": "{name}", "arguments": ',
        end="}</tool_call>",
        trigger="<tool_call>",
        think_suffix="\n\n",
        free_reasoning=True,
    ),
}

for _name, _model in MODELS.items():
    register_model_structural_tag(_name)(_model.structural_tag)


def _k3(kind: str, content: Any, *, begins: bool = True) -> TagFormat:
    return TagFormat(
        begin=f"<|open|>{kind}<|sep|>" if begins else "", content=content, end=f"<|close|>{kind}<|sep|>"
    )


@register_model_structural_tag("kimi_k3")
def _kimi_k3(
    tools: Sequence[FunctionToolParam] | None = None,
    builtin_tools: Sequence[BuiltinToolParam] | None = None,
    tool_choice: str = "auto",
    reasoning: bool | str = "enabled",
    **options: Any,
) -> StructuralTag:
    """Kimi K3: a message of channels, each opened and closed by name; the prompt has opened the first."""
    own, reasoning = Options(**options), reasoning_mode(reasoning)
    text = own.text(("<|open|>", "<|close|>"))
    calls = [
        TagFormat(
            begin=f'<|open|>call tool="{tool.function.name}" index="',
            content=SequenceFormat(
                elements=[
                    RegexFormat(pattern=r"\d+"),
                    ConstStringFormat(value='"<|sep|>'),
                    own.arguments(parameters(tool), "kimi_k3_xml", ("<|open|>", "<|close|>", "<|sep|>")),
                ]
            ),
            end="<|close|>call<|sep|>",
        )
        for tool in tools or []
    ]
    if tool_choice != "auto" and not calls:
        raise ValueError(_FORCED if tool_choice == "forced" else "Required tool choice needs a function tool.")
    channels: list[Any] = []
    if reasoning == "enabled":
        channels.append(_k3("think", text, begins=False))
    elif reasoning == "auto":
        channels.append(OptionalFormat(content=_k3("think", text)))
    channels.append(_k3("response", text, begins=reasoning != "disabled"))
    if calls:
        several = TagsWithSeparatorFormat(
            tags=calls, separator="", at_least_one=True, stop_after_first=not own.parallel_tool_calls
        )
        content = calls[0] if tool_choice == "forced" else several
        section = _k3("tools", content)
        if tool_choice == "auto":
            channels.append(OptionalFormat(content=section))
        else:
            begin, end = ConstStringFormat(value=section.begin), ConstStringFormat(value=section.end)
            channels.append(SequenceFormat(elements=[begin, content, end]))
    channels.append(ConstStringFormat(value="<|close|>message<|sep|>"))
    return StructuralTag(format=SequenceFormat(elements=channels))


def _harmony_call(tool: FunctionToolParam | BuiltinToolParam, options: Options) -> list[TagFormat]:
    """The ways to write a call: the recipient within the channel or before it."""
    if isinstance(tool, FunctionToolParam):
        to, kinds = f"functions.{tool.function.name}", ("<|constrain|>json", "json")
        begins = [f"<|channel|>commentary to={to}<|constrain|>json<|message|>"]
    else:
        to, kinds = tool.name or tool.type, ("code",)
        begins = [f"<|channel|>commentary to={to} code<|message|>"]
    begins += [f" to={to}<|channel|>commentary {kind}<|message|>" for kind in kinds]
    return [
        TagFormat(begin=begin, content=options.arguments(parameters(tool)), end="<|call|>")
        for begin in begins
    ]


@register_model_structural_tag("harmony")
def _harmony(
    tools: Sequence[FunctionToolParam] | None = None,
    builtin_tools: Sequence[BuiltinToolParam] | None = None,
    tool_choice: str = "auto",
    reasoning: bool | str = "enabled",
    **options: Any,
) -> StructuralTag:
    """OpenAI's Harmony: messages in channels."""
    own, reasoning = Options(**options), reasoning_mode(reasoning)

    def message(channel: str) -> TagFormat:
        return TagFormat(
            begin=f"<|channel|>{channel}<|message|>", content=AnyTextFormat(), end=["<|end|>", "<|return|>"]
        )

    def messages(tags: Sequence[TagFormat], *, at_least_one: bool, stop_after_first: bool = False) -> Any:
        return TagsWithSeparatorFormat(
            tags=tags,
            separator="<|start|>assistant",
            at_least_one=at_least_one,
            stop_after_first=stop_after_first,
        )

    functions, builtins = tools or [], builtin_tools or []
    order = [*functions, *builtins] if tool_choice == "auto" else [*builtins, *functions]
    calls = [call for tool in order for call in _harmony_call(tool, own)]
    texts = [message("final")] if tool_choice == "auto" else []
    if reasoning != "disabled":
        texts.append(message("analysis"))
    if own.parallel_tool_calls or not calls:
        return StructuralTag(format=messages([*calls, *texts], at_least_one=False))
    one = messages(calls, at_least_one=True, stop_after_first=True)
    if not texts:
        return StructuralTag(format=OptionalFormat(content=one))
    after_texts = [messages(texts, at_least_one=True), ConstStringFormat(value="<|start|>assistant"), one]
    return StructuralTag(
        format=OrFormat(
            elements=[messages(texts, at_least_one=False), one, SequenceFormat(elements=after_texts)]
        )
    )
