"""vLLM's structured-output backend by Formwork. Imports vLLM; `vllm.register` puts it into place."""

from __future__ import annotations

import contextvars
import json
import os
from typing import Any

import torch
import vllm.v1.structured_output as manager_module
import vllm.v1.structured_output.backend_xgrammar as xgrammar_module
from vllm.exceptions import VLLMClientError
from vllm.sampling_params import SamplingParams
from vllm.v1.structured_output import StructuredOutputManager
from vllm.v1.structured_output.backend_types import (
    StructuredOutputBackend,
    StructuredOutputGrammar,
    StructuredOutputOptions,
)
from vllm.v1.structured_output.request import get_structured_output_key

from formwork.grammar import CompiledGrammar, CompileError, GrammarCompiler, TokenizerInfo, bitmask_words

from . import _host
from ._engine import Request, fill_rows

__all__ = ["FormworkBackend", "FormworkGrammar", "FormworkValidationError", "install"]

# True if objects have no members but those that their schema names.
STRICT = _host.is_on("FORMWORK_STRICT")


class FormworkValidationError(VLLMClientError):
    """A structured output that can't be enforced.

    Not a `VLLMValidationError`: after one, `auto` would choose another backend, and an engine has only one.
    """


class FormworkGrammar(StructuredOutputGrammar):
    """A request's grammar."""

    def __init__(self, request: Request) -> None:
        self.request = request

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Accepts tokens one by one; False at the first that isn't allowed. Those behind the end are ignored."""
        for token_id in tokens:
            if self.request.matcher.is_terminated():
                return True
            if not self.request.accept_token(token_id):
                return False
        return True

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """The longest prefix of `tokens` that could be accepted; nothing changes."""
        accepted = 0
        for token_id in tokens:
            if self.request.matcher.is_terminated() or not self.request.accept_token(token_id):
                break
            accepted += 1
        self.request.rollback(accepted)
        return tokens[:accepted]

    def rollback(self, num_tokens: int) -> None:
        """Takes back the last tokens."""
        self.request.rollback(num_tokens)

    def fill_bitmask(self, bitmask: torch.Tensor, batch_index: int) -> None:
        """Writes the next token's mask into a row."""
        self.request.fill(bitmask, batch_index)

    def is_terminated(self) -> bool:
        """True once a stop token was accepted."""
        return self.request.matcher.is_terminated()

    def reset(self) -> None:
        """Back to the start."""
        self.request.reset()


class FormworkBackend(StructuredOutputBackend):
    """Takes the place of vLLM's XgrammarBackend."""

    def __init__(self, vllm_config: Any, tokenizer: Any, vocab_size: int) -> None:
        super().__init__(vllm_config, tokenizer, vocab_size)
        self.compact = vllm_config.structured_outputs_config.disable_any_whitespace
        self.compiler = _compiler_for(tokenizer, vocab_size)

    def compile_grammar(
        self,
        request_type: StructuredOutputOptions,
        grammar_spec: str,
        stop_token_ids: set[int] | None = None,
    ) -> FormworkGrammar:
        """Compiles a request's grammar, without the GIL.

        Raises:
            CompileError: it can't be enforced; vLLM ends this request alone.
        """
        grammar = _compile(self.compiler, request_type, grammar_spec, self.compact)
        return FormworkGrammar(Request(grammar, sorted(stop_token_ids) if stop_token_ids else None))

    def allocate_token_bitmask(self, max_num_seqs: int) -> torch.Tensor:
        """`[max_num_seqs, ceil(vocab_size / 32)]` of int32 on the CPU in which every token is allowed."""
        return torch.full((max_num_seqs, bitmask_words(self.vocab_size)), -1, dtype=torch.int32)

    def destroy(self) -> None:
        """Forgets the compiler."""
        del self.compiler


def _compile(
    compiler: GrammarCompiler, kind: StructuredOutputOptions, source: str, compact: bool
) -> CompiledGrammar:
    options: dict[str, Any] = {"whitespace": "compact" if compact else "flexible"}
    match kind:
        case StructuredOutputOptions.JSON:
            return compiler.compile_json_schema(source, strict=STRICT, **options)
        case StructuredOutputOptions.JSON_OBJECT:
            return compiler.compile_json_object(**options)
        case StructuredOutputOptions.REGEX:
            return compiler.compile_regex(source)
        case StructuredOutputOptions.CHOICE:
            return compiler.compile_choice(json.loads(source))
        case StructuredOutputOptions.GRAMMAR:
            return compiler.compile_grammar(source)
        case StructuredOutputOptions.STRUCTURAL_TAG:
            return compiler.compile_structural_tag(source)
    raise ValueError(f"{kind} is a kind of structured output that Formwork doesn't know")


# The last tokenizer, its width and process, and the compiler, which is of no use in a fork: a process serves one model,
# whose index of the vocabulary is built once.
_last: tuple[Any, tuple[int, int], GrammarCompiler] | None = None


def _compiler_for(tokenizer: Any, vocab_size: int) -> GrammarCompiler:
    global _last
    key = (vocab_size, os.getpid())
    if _last is None or _last[0] is not tokenizer or _last[1] != key:
        try:
            info = TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocab_size)
        except TypeError as error:
            raise TypeError(
                f"{error}. vLLM's tokenizer_mode must be one of a fast tokenizer: auto or hf"
            ) from error
        _last = (tokenizer, key, GrammarCompiler(info))
    return _last[2]


# The tokenizer of the request that is being checked, and the width of its model's logits.
_checked: contextvars.ContextVar[tuple[Any, int] | None] = contextvars.ContextVar("checked", default=None)


def validate(sampling_params: SamplingParams) -> None:
    """Takes the place of vLLM's `validate_xgrammar_grammar`: compiles the grammar in the front end.

    Raises:
        FormworkValidationError: it can't be enforced.
    """
    params = sampling_params.structured_outputs
    if params is None:
        return
    checked = _checked.get()
    if checked is not None:
        compiler = _compiler_for(*checked)
    elif _last is not None and _last[1][1] == os.getpid():
        compiler = _last[2]
    else:
        # vLLM checks a few requests without a tokenizer: over single bytes.
        compiler = GrammarCompiler(
            TokenizerInfo([bytes([byte]) for byte in range(256)] + [b"<eos>"], stop_token_ids=[256])
        )
    try:
        kind, source = get_structured_output_key(params)
        _compile(compiler, kind, source, compact=False)
    except (CompileError, TypeError, ValueError) as error:
        raise FormworkValidationError(f"structured_outputs: {error}") from error


def install() -> None:
    """Puts the backend into vLLM's module of structured output. Calling it again changes nothing."""
    if manager_module.XgrammarBackend is FormworkBackend:
        return
    check = SamplingParams._validate_structured_outputs
    grammar_bitmask = StructuredOutputManager.grammar_bitmask
    fill_bitmasks = StructuredOutputManager._fill_bitmasks

    def _validate_structured_outputs(
        self: SamplingParams, model_config: Any, structured_outputs_config: Any, tokenizer: Any
    ) -> None:
        checked = None if tokenizer is None else (tokenizer, model_config.get_vocab_size())
        token = _checked.set(checked)
        try:
            check(self, model_config, structured_outputs_config, tokenizer)
        finally:
            _checked.reset(token)

    def _fill_bitmasks(self: StructuredOutputManager, batch: Any) -> None:
        # One native call for all rows that our grammars fill; the manager's own code does the others.
        filled, others = [], []
        for entry in batch:
            grammar, row, apply_bitmask, _ = entry
            if apply_bitmask and isinstance(grammar, FormworkGrammar) and not grammar.is_terminated():
                filled.append((grammar.request, row))
            else:
                others.append(entry)
        if others:
            fill_bitmasks(self, others)
        if not filled:
            return
        pending = getattr(self, "_formwork_pending", None)
        if pending is not None:
            pending.extend(filled)
            return
        fill_rows([request for request, _ in filled], self._grammar_bitmask, [row for _, row in filled])

    def _grammar_bitmask(
        self: StructuredOutputManager,
        requests: Any,
        structured_output_request_ids: list[str],
        scheduled_spec_decode_tokens: dict[str, list[int]],
    ) -> Any:
        # Without drafts no row depends on another, so those that the manager would fill one by one wait for the
        # end. A larger batch goes to its threads, each of which fills a part of it.
        is_serial = len(structured_output_request_ids) <= self.fill_bitmask_parallel_threshold
        if scheduled_spec_decode_tokens or not is_serial:
            return grammar_bitmask(
                self, requests, structured_output_request_ids, scheduled_spec_decode_tokens
            )
        self._formwork_pending = []
        try:
            bitmask = grammar_bitmask(
                self, requests, structured_output_request_ids, scheduled_spec_decode_tokens
            )
            pending = self._formwork_pending
        finally:
            self._formwork_pending = None
        if pending:
            fill_rows(
                [request for request, _ in pending], self._grammar_bitmask, [row for _, row in pending]
            )
        return bitmask

    SamplingParams._validate_structured_outputs = _validate_structured_outputs
    StructuredOutputManager.grammar_bitmask = _grammar_bitmask
    StructuredOutputManager._fill_bitmasks = _fill_bitmasks
    manager_module.XgrammarBackend = FormworkBackend
    xgrammar_module.validate_xgrammar_grammar = validate
