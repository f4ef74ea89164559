"""Compiled grammars, and what compiles them."""

from __future__ import annotations

import functools
import json
from typing import Any

from formwork import grammar as _formwork
from formwork.grammar.captures import LarkCaptures, mentions_capture

from . import _serialization
from ._lark_names import with_any_space
from .exception import DeserializeFormatError
from .grammar import Grammar
from .tokenizer_info import TokenizerInfo

__all__ = ["CompiledGrammar", "GrammarCompiler"]


class CompiledGrammar:
    """A compiled grammar."""

    def __init__(self, compiled: _formwork.CompiledGrammar, info: TokenizerInfo, grammar: Grammar) -> None:
        self._compiled, self._info, self._grammar = compiled, info, grammar
        self._has_captures = grammar._kind == "lark" and mentions_capture(grammar._source[0])

    @functools.cached_property
    def _captures(self) -> LarkCaptures:
        """Reads the captures of texts."""
        vocabulary = self._info.decoded_vocab, self._info.special_token_ids
        return LarkCaptures(with_any_space(self._grammar._source[0]), vocabulary)

    @property
    def grammar(self) -> Grammar:
        """What it was compiled from."""
        return self._grammar

    @property
    def tokenizer_info(self) -> TokenizerInfo:
        """The vocabulary that it was compiled for."""
        return self._info

    @property
    def memory_size_bytes(self) -> int:
        """Bytes that compiling it added."""
        return self._compiled.memory_size_bytes

    def serialize_json(self) -> str:
        """JSON of its source and of the vocabulary's metadata: it is compiled again elsewhere."""
        return _serialization.written(
            "compiled_grammar",
            {
                "grammar": self._grammar._fields(),
                "tokenizer_metadata": json.loads(self._info.dump_metadata()),
            },
        )

    @staticmethod
    def deserialize_json(json_str: str, tokenizer_info: TokenizerInfo) -> CompiledGrammar:
        """From what `serialize_json` gave, compiled for a vocabulary, which must be the same.

        Raises:
            InvalidJSONError, DeserializeVersionError, DeserializeFormatError: it is something else.
        """
        fields = _serialization.read(
            "compiled_grammar", json_str, {"grammar": dict, "tokenizer_metadata": dict}
        )
        if fields["tokenizer_metadata"] != json.loads(tokenizer_info.dump_metadata()):
            raise DeserializeFormatError("the grammar was compiled for another vocabulary")
        return GrammarCompiler(tokenizer_info)._compile(Grammar._from_fields(fields["grammar"]))


class GrammarCompiler:
    """Compiles grammars for a vocabulary.

    `max_threads` has no effect: a compilation is short, and the GIL is released. `cache_limit_bytes` of -1
    means Formwork's default, 128 MiB.

    Raises:
        ValueError: tokenizer_info is no TokenizerInfo.
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
        self._cache_limit_bytes = cache_limit_bytes
        self._compiler = _formwork.GrammarCompiler(
            tokenizer_info._info, cache_bytes=None if cache_limit_bytes < 0 else cache_limit_bytes
        )

    def _compile(self, grammar: Grammar) -> CompiledGrammar:
        return CompiledGrammar(grammar.compiled_by(self._compiler), self._info, grammar)

    def compile_json_schema(self, schema: Any, **options: Any) -> CompiledGrammar:
        """Compiles a JSON Schema: a str, a dict or a pydantic model.

        Options: any_whitespace, indent, separators, strict_mode, max_whitespace_cnt, any_order. As in XGrammar
        indent and separators hold with any_whitespace=False alone.

        Raises:
            GrammarError: with the pointer of what is malformed or can't be enforced.
            InvalidJSONError: it is no JSON.
        """
        return self._compile(Grammar._of_schema(schema, **options))

    def compile_builtin_json_grammar(self) -> CompiledGrammar:
        """Compiles the grammar of any JSON object or array."""
        return self._compile(Grammar.builtin_json_grammar())

    def compile_regex(self, regex: str) -> CompiledGrammar:
        """Compiles a regular expression, which is to match the whole text.

        Raises:
            GrammarError: with line and column.
        """
        return self._compile(Grammar("regex", [regex]))

    def compile_lark(
        self, lark_string: str, *, named_grammars: dict[str, Grammar | str] | None = None
    ) -> CompiledGrammar:
        """Compiles a grammar in Lark; `named_grammars` as `Grammar.from_lark`.

        Raises:
            GrammarError: with line and column.
            TypeError, NotImplementedError: named_grammars isn't what it must be.
        """
        return self._compile(Grammar._of_lark(lark_string, named_grammars))

    def compile_structural_tag(self, *args: Any, **kwargs: Any) -> CompiledGrammar:
        """Compiles a structural tag; arguments as `Grammar.from_structural_tag`.

        Raises:
            InvalidJSONError, InvalidStructuralTagError: it is malformed, or a part can't be enforced.
            TypeError: neither of these arguments.
        """
        return self._compile(Grammar._of_tag(*args, **kwargs))

    def compile_grammar(self, grammar: str | Grammar, *, root_rule_name: str = "root") -> CompiledGrammar:
        """Compiles EBNF or a Grammar.

        Raises:
            GrammarError: with the place of what is malformed or can't be enforced.
        """
        if isinstance(grammar, str):
            grammar = Grammar("ebnf", [grammar, root_rule_name])
        return self._compile(grammar)

    def clear_cache(self) -> None:
        """Forgets what was compiled."""
        self._compiler.clear_cache()

    def get_cache_size_bytes(self) -> int:
        """Bytes held for reuse; 0 with cache_enabled=False."""
        return self._compiler.get_cache_size_bytes() if self._cache_enabled else 0

    @property
    def cache_limit_bytes(self) -> int:
        """As it was given."""
        return self._cache_limit_bytes
