"""How each model writes reasoning and tool calls: a table, and the two models that fit in none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._model import FORCED, THINK, Model, Options, parameters
from .builtin_structural_tag import reasoning_mode, register_model_structural_tag
from .openai_tool_call_schema import BuiltinToolParam, FunctionToolParam
from .structural_tag import (
    AnyTextFormat,
    ConstStringFormat,
    OptionalFormat,
    OrFormat,
    RegexFormat,
    SequenceFormat,
    StructuralTag,
    TagFormat,
    TagsWithSeparatorFormat,
)

_DSML = "<｜DSML｜"
_DSML_END = "</｜DSML｜"
_MIMO = (*THINK, "</tool_call>", "<function=")
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
    "llama": Model(begin='{"name": "{name}", "parameters": ', end="}", trigger='{"name": ', think=None),
    "kimi": Model(
        begin="<|tool_call_begin|>functions.{name}:{n}<|tool_call_argument_begin|>",
        end="<|tool_call_end|>",
        trigger="<|tool_calls_section_begin|>",
        section=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        call_excludes=(*THINK, "<|tool_call_begin|>"),
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
        think_excludes=(*THINK, "<tool_call>", *_GLM),
        excludes=(*THINK, "<tool_call>", *_GLM),
        call_excludes=(*THINK, *_GLM),
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
        raise ValueError(FORCED if tool_choice == "forced" else "Required tool choice needs a function tool.")
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
            begin, end = (
                ConstStringFormat(value=str(section.begin)),
                ConstStringFormat(value=str(section.end)),
            )
            channels.append(SequenceFormat(elements=[begin, content, end]))
    channels.append(ConstStringFormat(value="<|close|>message<|sep|>"))
    return StructuralTag(format=SequenceFormat(elements=channels))


def _harmony_call(tool: FunctionToolParam | BuiltinToolParam, options: Options) -> list[TagFormat]:
    """The ways to write a call: the recipient within the channel or before it."""
    if isinstance(tool, FunctionToolParam):
        to, kinds = f"functions.{tool.function.name}", ["<|constrain|>json", "json"]
        begins = [f"<|channel|>commentary to={to}<|constrain|>json<|message|>"]
    else:
        to, kinds = tool.name or tool.type, ["code"]
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
            tags=list(tags),
            separator="<|start|>assistant",
            at_least_one=at_least_one,
            stop_after_first=stop_after_first,
        )

    functions, builtins = tools or [], builtin_tools or []
    order: list[FunctionToolParam | BuiltinToolParam] = (
        [*functions, *builtins] if tool_choice == "auto" else [*builtins, *functions]
    )
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
