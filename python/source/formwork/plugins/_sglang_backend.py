"""SGLang's grammar backend by Formwork. Imports SGLang; `sglang.register` names it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import torch
from sglang.srt.constrained.base_grammar_backend import (
    BaseGrammarBackend,
    BaseGrammarObject,
    GrammarRow,
    GrammarStats,
    InvalidGrammarObject,
)
from sglang.srt.constrained.reasoner_grammar_backend import ReasonerGrammarBackend, ReasonerGrammarObject
from sglang.srt.constrained.torch_ops.token_filter_torch_ops import set_token_filter_torch
from sglang.srt.parser.reasoning_parser import ReasoningParser
from sglang.srt.runtime_context import get_serving
from sglang.srt.utils.common import is_pin_memory_available

from formwork.grammar import CompiledGrammar, CompileError, GrammarCompiler, TokenizerInfo, bitmask_words
from formwork.grammar.hf import apply_bitmask

from . import _host
from ._engine import Request, fill_rows

__all__ = ["FormworkBackend", "FormworkGrammar", "create"]


def create(
    server_args: Any, tokenizer: Any, vocab_size: int, eos_token_ids: set[int] | None
) -> BaseGrammarBackend:
    """The backend for a server, wrapped for reasoning where the server has a reasoning parser."""
    serving = get_serving()
    backend = FormworkBackend(
        tokenizer,
        vocab_size,
        eos_token_ids,
        json_options(
            serving.constrained_json_disable_any_whitespace,
            serving.constrained_json_max_whitespace_cnt,
            serving.constrained_json_whitespace_pattern,
        ),
    )
    # SGLang wraps its own backends so, and leaves it to others.
    if not serving.reasoning_parser:
        return backend
    parser = ReasoningParser(
        model_type=serving.reasoning_parser, stream_reasoning=False, tokenizer=tokenizer
    )
    if not parser.detector.get_think_end_token_ids(tokenizer):
        return backend
    return FormworkReasonerBackend(
        backend, parser, tokenizer, enable_strict_thinking=serving.enable_strict_thinking
    )


def json_options(
    disable_any_whitespace: bool, max_whitespace_cnt: int | None, whitespace_pattern: str | None
) -> dict[str, Any]:
    """Options of `compile_json_schema` for FORMWORK_STRICT and SGLang's `--constrained-json-...`."""
    strict = _host.is_on("FORMWORK_STRICT")
    if whitespace_pattern is not None:
        return {"strict": strict, "whitespace_pattern": whitespace_pattern}
    if disable_any_whitespace:
        return {"strict": strict, "whitespace": "compact"}
    if max_whitespace_cnt is not None:
        return {"strict": strict, "whitespace_pattern": f"[ \\n\\r\\t]{{0,{max_whitespace_cnt}}}"}
    return {"strict": strict, "whitespace": "flexible"}


class FormworkGrammar(BaseGrammarObject):
    """A request's grammar.

    Args:
        grammar: compiled.
        kind: what it was compiled from: json, regex, ebnf or structural_tag.
        content: the same as the content of a structural tag, for a reasoning parser that frames answers.
        stop_token_ids: the model's.
    """

    def __init__(
        self,
        grammar: CompiledGrammar,
        kind: str,
        content: dict[str, Any],
        stop_token_ids: list[int] | None,
    ) -> None:
        super().__init__()
        self.grammar, self.kind, self.content = grammar, kind, content
        self.request = Request(grammar, stop_token_ids)
        self.grammar_stats = GrammarStats(dispatch_type=kind)

    def accept_token(self, token: int) -> None:
        """Accepts a token; one behind the end is ignored.

        Raises:
            ValueError: it isn't allowed, or a limit was met: SGLang aborts this request alone.
        """
        if self.is_terminated():
            return
        self.current_token = token
        if not self.request.accept_token(token):
            reason = self.request.failure or f"token {token} is not allowed by the grammar"
            raise ValueError(str(reason))

    def rollback(self, k: int) -> None:
        """Takes back the last k tokens."""
        self.request.rollback(k)

    def is_terminated(self) -> bool:
        """True once a stop token was accepted."""
        return self.request.matcher.is_terminated()

    def allocate_vocab_mask(self, vocab_size: int, batch_size: int, device: Any) -> torch.Tensor:
        """`[batch_size, ceil(vocab_size / 32)]` of int32 on the host, pinned where that can be."""
        return _allocate(vocab_size, batch_size, device)

    def fill_vocab_mask(self, vocab_mask: torch.Tensor, idx: int) -> None:
        """Writes the next token's mask into a row."""
        self.request.fill(vocab_mask, idx)

    @staticmethod
    def fill_vocab_mask_batched(entries: list[GrammarRow], vocab_mask: torch.Tensor) -> None:
        """Writes the listed rows, those of our grammars in one native call."""
        _fill(entries, vocab_mask)

    @staticmethod
    def reset_vocab_mask(vocab_mask: torch.Tensor) -> None:
        """Allows every token."""
        vocab_mask.fill_(-1)

    @staticmethod
    def move_vocab_mask(vocab_mask: torch.Tensor, device: Any) -> torch.Tensor:
        """The mask on the logits' device."""
        return vocab_mask.to(device, non_blocking=True)

    @staticmethod
    def apply_vocab_mask(logits: torch.Tensor, vocab_mask: torch.Tensor) -> None:
        """Sets the logits of tokens that aren't allowed to minus infinity."""
        _apply(logits, vocab_mask)

    def copy(self) -> FormworkGrammar:
        """Another request's, at the start."""
        copied = FormworkGrammar(self.grammar, self.kind, self.content, self.request.stop_token_ids)
        copied.grammar_stats.is_cache_hit = True
        return copied

    def try_jump_forward(self, tokenizer: Any) -> tuple[list[int], str] | None:
        """The text that must come next, if there is one."""
        text = self.request.matcher.find_jump_forward_string()
        return ([], text) if text else None

    def jump_forward_str_state(self, helper: tuple[list[int], str]) -> tuple[str, int]:
        """The text of `try_jump_forward`."""
        return helper[1], -1

    def jump_and_retokenize(
        self, old_output_ids: list[int], new_output_ids: list[int], next_state: int
    ) -> None:
        """Goes back to the last token that both have, and on from there."""
        pairs = zip(old_output_ids, new_output_ids, strict=False)
        common = next((at for at, (old, new) in enumerate(pairs) if old != new), None)
        if common is None:
            common = min(len(old_output_ids), len(new_output_ids))
        self.rollback(len(old_output_ids) - common)
        for token_id in new_output_ids[common:]:
            self.accept_token(token_id)


class FormworkBackend(BaseGrammarBackend):
    """Compiles SGLang's grammars for one vocabulary."""

    def __init__(
        self, tokenizer: Any, vocab_size: int, eos_token_ids: set[int] | None, options: dict[str, Any]
    ) -> None:
        super().__init__()
        self.stop_token_ids = sorted(eos_token_ids) if eos_token_ids else None
        self.options = options
        info = TokenizerInfo.from_huggingface(
            tokenizer, vocab_size=vocab_size, stop_token_ids=self.stop_token_ids
        )
        self.compiler = GrammarCompiler(info)

    is_support_token_filter = True
    set_token_filter = staticmethod(set_token_filter_torch)

    # The four that a reasoning parser without a grammar takes from the backend.
    @staticmethod
    def allocate_vocab_mask(vocab_size: int, batch_size: int, device: Any) -> torch.Tensor:
        """As of a grammar."""
        return _allocate(vocab_size, batch_size, device)

    move_vocab_mask = staticmethod(FormworkGrammar.move_vocab_mask)
    apply_vocab_mask = staticmethod(FormworkGrammar.apply_vocab_mask)

    def _compiled(
        self,
        kind: str,
        content: dict[str, Any],
        compile: Callable[..., CompiledGrammar],
        source: str,
        **options: Any,
    ) -> BaseGrammarObject:
        try:
            return FormworkGrammar(compile(source, **options), kind, content, self.stop_token_ids)
        except (CompileError, TypeError, ValueError) as error:
            return InvalidGrammarObject(str(error))

    def dispatch_json(self, key_string: str) -> BaseGrammarObject:
        """A JSON Schema; `$$ANY$$` stands for any JSON value."""
        source = "{}" if key_string == "$$ANY$$" else key_string
        try:
            content = {"type": "json_schema", "json_schema": json.loads(source)}
        except ValueError:
            # The compiler's error says where it is no JSON.
            content = {"type": "json_schema"}
        compile = self.compiler.compile_json_schema
        return self._compiled("json", content, compile, source, **self.options)

    def dispatch_regex(self, key_string: str) -> BaseGrammarObject:
        """A regular expression, of the whole text."""
        content = {"type": "regex", "pattern": key_string}
        return self._compiled("regex", content, self.compiler.compile_regex, key_string)

    def dispatch_ebnf(self, key_string: str) -> BaseGrammarObject:
        """EBNF, or Lark."""
        content = {"type": "grammar", "grammar": key_string}
        return self._compiled("ebnf", content, self.compiler.compile_grammar, key_string)

    def dispatch_structural_tag(self, key_string: str) -> BaseGrammarObject:
        """A structural tag. A tag without a schema may hold any JSON value."""
        try:
            tag = json.loads(key_string)
        except ValueError as error:
            return InvalidGrammarObject(f"structural tag: {error}")
        _allow_any_schema(tag)
        content = tag.get("format", {}) if isinstance(tag, dict) else {}
        compile = self.compiler.compile_structural_tag
        return self._compiled("structural_tag", content, compile, json.dumps(tag))

    def compile_framed_grammar(
        self, grammar: BaseGrammarObject, frame: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> BaseGrammarObject | None:
        """Compiles an answer within the frame of a reasoning parser whose messages have kinds."""
        if not isinstance(grammar, FormworkGrammar):
            return None
        tag = frame(grammar.content)
        compile = self.compiler.compile_structural_tag
        return self._compiled("structural_tag", {}, compile, json.dumps(tag))

    def reset(self) -> None:
        """Forgets what was compiled."""
        super().reset()
        self.compiler.clear_cache()


class FormworkReasoner(ReasonerGrammarObject):
    """SGLang's deferral of a grammar until the reasoning ends, with masks by one native call."""

    @staticmethod
    def fill_vocab_mask_batched(entries: list[GrammarRow], vocab_mask: torch.Tensor) -> None:
        """Writes the listed rows, those whose reasoning is over in one native call."""
        _fill(entries, vocab_mask)

    def copy(self) -> FormworkReasoner:
        """Another request's."""
        copied = super().copy()
        copied.__class__ = FormworkReasoner
        return copied


class FormworkReasonerBackend(ReasonerGrammarBackend):
    """SGLang's own, whose objects are `FormworkReasoner`."""

    def _make_grammar_object(
        self, grammar: BaseGrammarObject | None, reasoning: bool
    ) -> FormworkReasoner:
        made = super()._make_grammar_object(grammar, reasoning)
        made.__class__ = FormworkReasoner
        return made


def _allow_any_schema(node: Any) -> None:
    """Gives each tag without a schema one that allows any value, as SGLang does for XGrammar."""
    if isinstance(node, list):
        for each in node:
            _allow_any_schema(each)
        return
    if not isinstance(node, dict):
        return
    if node.get("type") in ("json_schema", "qwen_xml_parameter"):
        if node.get("json_schema") is None:
            node["json_schema"] = {}
        return
    for name in ("format", "content", "elements", "tags"):
        _allow_any_schema(node.get(name))
    for structure in node.get("structures") or []:
        if isinstance(structure, dict) and structure.get("schema") is None:
            structure["schema"] = {}


def _allocate(vocab_size: int, batch_size: int, device: Any) -> torch.Tensor:
    shape = (batch_size, bitmask_words(vocab_size))
    return torch.full(shape, -1, dtype=torch.int32, pin_memory=is_pin_memory_available())


def _fill(entries: Sequence[GrammarRow], vocab_mask: torch.Tensor) -> None:
    requests, rows = [], []
    for row, grammar in entries:
        inner = grammar
        if isinstance(grammar, FormworkReasoner) and not grammar.reasoning_in_grammar:
            inner = grammar.grammar if grammar._is_generation() else None
        if isinstance(inner, FormworkGrammar):
            requests.append(inner.request)
            rows.append(row)
        else:
            grammar.fill_vocab_mask(vocab_mask, row)
    if requests:
        fill_rows(requests, vocab_mask, rows)


def _apply(logits: torch.Tensor, vocab_mask: torch.Tensor) -> None:
    if logits.device.type == "cuda" and torch.version.hip is None:
        from sglang.kernels.ops.grammar.bitmask_ops import apply_token_bitmask_inplace_triton

        apply_token_bitmask_inplace_triton(logits, vocab_mask)
    else:
        apply_bitmask(logits, vocab_mask)
