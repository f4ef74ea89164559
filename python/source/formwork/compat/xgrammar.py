"""The part of XGrammar's API by which engines constrain their output, over Formwork's grammar engine.

    import formwork.compat.xgrammar as xgr

or `install()`, after which `import xgrammar` gives this module. docs/python.md lists what is there, what
isn't, and what differs. What can't be enforced raises; nothing is dropped silently. Imports torch.
"""

from __future__ import annotations

import enum
import json
import re
import sys
from collections.abc import Sequence
from typing import Any

import torch

from formwork import grammar as _formwork

__all__ = [
    "BatchGrammarMatcher",
    "CompiledGrammar",
    "Grammar",
    "GrammarCompiler",
    "GrammarMatcher",
    "TokenizerInfo",
    "VocabType",
    "allocate_token_bitmask",
    "apply_token_bitmask_inplace",
    "bitmask_dtype",
    "get_bitmask_shape",
    "install",
    "reset_token_bitmask",
]

bitmask_dtype = torch.int32

# Names by which a stop token is known where none is given.
_STOP_TOKENS = {
    "</s>",
    "<eos>",
    "<end_of_turn>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|im_end|>",
}


def install() -> None:
    """Lets `import xgrammar` give this module, in this process.

    Raises:
        RuntimeError: another xgrammar was imported before.
    """
    this = sys.modules[__name__]
    if sys.modules.setdefault("xgrammar", this) is not this:
        raise RuntimeError("xgrammar was imported already: call install() before the first import of it")


class VocabType(enum.Enum):
    """How a vocabulary spells bytes."""

    RAW = 0
    BYTE_FALLBACK = 1
    BYTE_LEVEL = 2


def _byte_level_table() -> dict[str, int]:
    """GPT-2's characters for bytes: printable ones stand for themselves, the others follow from 256 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTE_OF = _byte_level_table()


def _decoded(token: str | bytes, vocab_type: VocabType) -> bytes:
    if isinstance(token, bytes):
        return token
    if vocab_type is VocabType.BYTE_FALLBACK:
        if match := re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", token):
            return bytes([int(match[1], 16)])
        return token.replace("\u2581", " ").encode()
    if vocab_type is VocabType.BYTE_LEVEL and all(sign in _BYTE_OF for sign in token):
        return bytes(_BYTE_OF[sign] for sign in token)
    return token.encode()


class TokenizerInfo:
    """A vocabulary, from its tokens as its files spell them.

    Raises:
        ValueError: no stop token was given, and none is known by its name; an id out of range.
    """

    def __init__(
        self,
        encoded_vocab: Sequence[str | bytes],
        vocab_type: VocabType = VocabType.RAW,
        *,
        vocab_size: int | None = None,
        stop_token_ids: int | Sequence[int] | None = None,
        add_prefix_space: bool = False,
    ) -> None:
        if isinstance(stop_token_ids, int):
            stop_token_ids = [stop_token_ids]
        if stop_token_ids is None:
            stop_token_ids = [
                token_id
                for token_id, token in enumerate(encoded_vocab)
                if (token if isinstance(token, str) else token.decode(errors="replace")) in _STOP_TOKENS
            ]
        self._info = _formwork.TokenizerInfo(
            [_decoded(token, vocab_type) for token in encoded_vocab],
            vocab_size=vocab_size,
            stop_token_ids=stop_token_ids,
            special_token_ids=stop_token_ids,
        )
        self._vocab_type = vocab_type
        self._add_prefix_space = add_prefix_space

    @staticmethod
    def from_huggingface(
        tokenizer: Any,
        *,
        vocab_size: int | None = None,
        stop_token_ids: int | Sequence[int] | None = None,
    ) -> TokenizerInfo:
        """From a fast tokenizer of transformers. `vocab_size` is the width of the model's logits."""
        if isinstance(stop_token_ids, int):
            stop_token_ids = [stop_token_ids]
        self = TokenizerInfo.__new__(TokenizerInfo)
        self._info = _formwork.TokenizerInfo.from_huggingface(
            tokenizer, vocab_size=vocab_size, stop_token_ids=stop_token_ids
        )
        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        decoder = json.dumps(json.loads(backend.to_str()).get("decoder") or {})
        self._vocab_type = (
            VocabType.BYTE_LEVEL
            if '"ByteLevel"' in decoder
            else VocabType.BYTE_FALLBACK
            if '"ByteFallback"' in decoder
            else VocabType.RAW
        )
        self._add_prefix_space = False
        return self

    @property
    def vocab_type(self) -> VocabType:
        """How the vocabulary spells bytes."""
        return self._vocab_type

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""
        return self._info.vocab_size

    @property
    def add_prefix_space(self) -> bool:
        """As it was given."""
        return self._add_prefix_space

    @property
    def decoded_vocab(self) -> list[bytes]:
        """The bytes of each token."""
        return self._info.decoded_vocab()

    @property
    def stop_token_ids(self) -> list[int]:
        """Tokens that end the text."""
        return self._info.stop_token_ids

    @property
    def special_token_ids(self) -> list[int]:
        """Control tokens."""
        return self._info.special_token_ids


class Grammar:
    """A grammar that isn't compiled yet: what `GrammarCompiler.compile_grammar` takes."""

    def __init__(self, method: str, source: Any, options: dict[str, Any]) -> None:
        self._method, self._source, self._options = method, source, options

    @staticmethod
    def from_ebnf(ebnf_string: str, *, root_rule_name: str = "root") -> Grammar:
        """From EBNF."""
        return Grammar("compile_ebnf", [ebnf_string, root_rule_name], {})

    @staticmethod
    def from_lark(lark_string: str) -> Grammar:
        """From Lark."""
        return Grammar("compile_lark", [lark_string], {})

    @staticmethod
    def from_regex(regex_string: str) -> Grammar:
        """From a regular expression."""
        return Grammar("compile_regex", [regex_string], {})

    @staticmethod
    def from_json_schema(schema: Any, **options: Any) -> Grammar:
        """From a JSON Schema; options as `GrammarCompiler.compile_json_schema`."""
        return Grammar("compile_json_schema", [schema], _json_options(**options))

    @staticmethod
    def from_structural_tag(structural_tag: Any) -> Grammar:
        """From a structural tag."""
        return Grammar("compile_structural_tag", [structural_tag], {})

    @staticmethod
    def builtin_json_grammar() -> Grammar:
        """Any JSON object."""
        options = _json_options()
        del options["strict"]
        return Grammar("compile_json_object", [], options)


def _json_options(
    *,
    any_whitespace: bool = True,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    strict_mode: bool = True,
    max_whitespace_cnt: int | None = None,
    any_order: bool = False,
) -> dict[str, Any]:
    if indent is not None:
        raise NotImplementedError(f"indent is {indent}, but Formwork enforces none: leave it None")
    options: dict[str, Any] = {"strict": strict_mode}
    if any_order:
        options["property_order"] = "any"
    if not any_whitespace:
        options["whitespace"] = "compact"
        options["separators"] = list(separators or (", ", ": "))
    else:
        count = "*" if max_whitespace_cnt is None else f"{{0,{int(max_whitespace_cnt)}}}"
        options["whitespace_pattern"] = "[ \\n\\r\\t]" + count
    return options


class CompiledGrammar:
    """A compiled grammar."""

    def __init__(self, compiled: _formwork.CompiledGrammar, info: TokenizerInfo) -> None:
        self._compiled, self._info = compiled, info

    @property
    def tokenizer_info(self) -> TokenizerInfo:
        """The vocabulary that it was compiled for."""
        return self._info

    @property
    def memory_size_bytes(self) -> int:
        """Bytes that compiling it added."""
        return self._compiled.memory_size_bytes


class GrammarCompiler:
    """Compiles grammars for a vocabulary.

    `max_threads` has no effect: a compilation is short, and the GIL is released. `cache_limit_bytes` of -1
    means Formwork's default, 128 MiB.
    """

    def __init__(
        self,
        tokenizer_info: TokenizerInfo,
        *,
        max_threads: int = 8,
        cache_enabled: bool = True,
        cache_limit_bytes: int = -1,
    ) -> None:
        if not isinstance(tokenizer_info, TokenizerInfo):
            raise ValueError("tokenizer_info must be a TokenizerInfo; see TokenizerInfo.from_huggingface")
        self._info, self._cache_enabled = tokenizer_info, cache_enabled
        self._compiler = _formwork.GrammarCompiler(
            tokenizer_info._info, cache_bytes=None if cache_limit_bytes < 0 else cache_limit_bytes
        )

    def _compile(self, grammar: Grammar) -> CompiledGrammar:
        method = getattr(self._compiler, grammar._method)
        return CompiledGrammar(method(*grammar._source, **grammar._options), self._info)

    def compile_json_schema(self, schema: Any, **options: Any) -> CompiledGrammar:
        """Compiles a JSON Schema: a str, a dict or a pydantic model.

        Options: any_whitespace, separators, strict_mode, max_whitespace_cnt, any_order.

        Raises:
            NotImplementedError: indent is not None.
        """
        return self._compile(Grammar.from_json_schema(schema, **options))

    def compile_builtin_json_grammar(self) -> CompiledGrammar:
        """Compiles the grammar of any JSON object."""
        return self._compile(Grammar.builtin_json_grammar())

    def compile_regex(self, regex: str) -> CompiledGrammar:
        """Compiles a regular expression."""
        return self._compile(Grammar.from_regex(regex))

    def compile_lark(self, lark_string: str) -> CompiledGrammar:
        """Compiles a grammar in Lark."""
        return self._compile(Grammar.from_lark(lark_string))

    def compile_structural_tag(self, structural_tag: Any) -> CompiledGrammar:
        """Compiles a structural tag: JSON as a str or dict."""
        return self._compile(Grammar.from_structural_tag(structural_tag))

    def compile_grammar(self, grammar: str | Grammar, *, root_rule_name: str = "root") -> CompiledGrammar:
        """Compiles EBNF or a Grammar."""
        if isinstance(grammar, str):
            grammar = Grammar.from_ebnf(grammar, root_rule_name=root_rule_name)
        return self._compile(grammar)

    def clear_cache(self) -> None:
        """Forgets what was compiled."""
        self._compiler.clear_cache()

    def get_cache_size_bytes(self) -> int:
        """Bytes held for reuse; 0 with cache_enabled=False."""
        return self._compiler.get_cache_size_bytes() if self._cache_enabled else 0


class GrammarMatcher:
    """One request's place in a grammar. `max_rollback_tokens` has no effect: there is no limit."""

    def __init__(
        self,
        compiled_grammar: CompiledGrammar,
        *,
        override_stop_tokens: int | Sequence[int] | None = None,
        terminate_without_stop_token: bool = False,
        max_rollback_tokens: int = -1,
    ) -> None:
        if isinstance(override_stop_tokens, int):
            override_stop_tokens = [override_stop_tokens]
        self._matcher = _formwork.GrammarMatcher(
            compiled_grammar._compiled,
            override_stop_tokens=override_stop_tokens,
            terminate_without_stop_token=terminate_without_stop_token,
        )

    def accept_token(self, token_id: int, *, debug_print: bool = False) -> bool:
        """Accepts a token; False after the end, or where it isn't allowed."""
        return not self._matcher.is_terminated() and self._matcher.accept_token(token_id)

    def accept_string(self, input_str: str | bytes, *, debug_print: bool = False) -> bool:
        """Accepts text, as one step."""
        return not self._matcher.is_terminated() and self._matcher.accept_string(input_str)

    def fill_next_token_bitmask(
        self, bitmask: torch.Tensor, index: int = 0, *, debug_print: bool = False
    ) -> bool:
        """Writes the next token's mask into a row; False where it allows every token."""
        return self._matcher.fill_next_token_bitmask(bitmask, index)

    def find_jump_forward_string(self) -> str:
        """The text that must come next."""
        return self._matcher.find_jump_forward_string()

    def rollback(self, num_tokens: int = 1) -> None:
        """Takes back the last steps."""
        self._matcher.rollback(num_tokens)

    def is_terminated(self) -> bool:
        """True once the text is at its end."""
        return self._matcher.is_terminated()

    def is_completed(self) -> bool:
        """True where the text could stop here."""
        return self._matcher.is_completed()

    def reset(self) -> None:
        """Back to the start."""
        self._matcher.reset()

    def fork(self) -> GrammarMatcher:
        """A matcher that goes its own way from here."""
        forked = GrammarMatcher.__new__(GrammarMatcher)
        forked._matcher = self._matcher.fork()
        return forked

    @property
    def max_rollback_tokens(self) -> int:
        """-1: no limit."""
        return -1

    @property
    def stop_token_ids(self) -> list[int]:
        """Tokens that end the text."""
        return self._matcher.stop_token_ids


class BatchGrammarMatcher:
    """Many matchers in one call. `max_threads` has no effect."""

    def __init__(self, max_threads: int | str = "auto") -> None:
        pass

    def batch_fill_next_token_bitmask(
        self,
        matchers: Sequence[GrammarMatcher],
        bitmask: torch.Tensor,
        indices: Sequence[int] | None = None,
        debug_print: bool = False,
    ) -> None:
        """Writes a row for each matcher."""
        _formwork.fill_next_token_bitmask_batch([m._matcher for m in matchers], bitmask, indices)

    @staticmethod
    def batch_accept_token(
        matchers: Sequence[GrammarMatcher], tokens: Sequence[int], debug_print: bool = False
    ) -> list[bool]:
        """Accepts a token by each matcher."""
        return [m.accept_token(token) for m, token in zip(matchers, tokens, strict=True)]

    @staticmethod
    def batch_accept_string(
        matchers: Sequence[GrammarMatcher], strings: Sequence[str | bytes], debug_print: bool = False
    ) -> list[bool]:
        """Accepts text by each matcher."""
        return [m.accept_string(text) for m, text in zip(matchers, strings, strict=True)]


def get_bitmask_shape(batch_size: int, vocab_size: int) -> tuple[int, int]:
    """`(batch_size, ceil(vocab_size / 32))`."""
    return batch_size, _formwork.bitmask_words(vocab_size)


def allocate_token_bitmask(batch_size: int, vocab_size: int) -> torch.Tensor:
    """A tensor on the CPU in which every token is allowed."""
    return torch.full(get_bitmask_shape(batch_size, vocab_size), -1, dtype=bitmask_dtype)


def reset_token_bitmask(bitmask: torch.Tensor) -> None:
    """Allows every token."""
    bitmask.fill_(-1)


def apply_token_bitmask_inplace(
    logits: torch.Tensor,
    bitmask: torch.Tensor,
    *,
    vocab_size: int | None = None,
    indices: Sequence[int] | None = None,
) -> None:
    """Sets logits to minus infinity whose bit is 0; beyond the mask, and `vocab_size`, they stay.

    `logits` and `bitmask` are `[batch, ...]` or one row, on any device. `indices` names rows of both.
    """
    width = min(logits.shape[-1], bitmask.shape[-1] * 32)
    if vocab_size is not None:
        width = min(width, vocab_size)
    rows, masks = torch.atleast_2d(logits), torch.atleast_2d(bitmask).to(logits.device)
    if rows.shape[0] != masks.shape[0] and indices is None:
        raise ValueError(f"logits have {rows.shape[0]} rows and bitmask {masks.shape[0]}: name indices")
    shifts = torch.arange(32, dtype=torch.int32, device=logits.device)
    chosen = range(rows.shape[0]) if indices is None else indices
    for row in chosen:
        allowed = (masks[row].unsqueeze(-1) >> shifts & 1).bool().flatten()[:width]
        rows[row, :width].masked_fill_(~allowed, float("-inf"))
