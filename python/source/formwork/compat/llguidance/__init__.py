"""The part of llguidance's API by which engines constrain output, over Formwork's grammar engine.

    import formwork.compat.llguidance as llguidance

or `install()`, after which `import llguidance` gives this package. docs/python.md lists what is there, what isn't,
and what differs. As in llguidance, a grammar that can't be enforced or a token that isn't allowed raises nothing: the
matcher is in error from then on, and says why by `get_error()`. Imports neither torch nor numpy.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from formwork import grammar as _formwork
from formwork.grammar.captures import without_reports

__all__ = ["LLExecutor", "LLMatcher", "LLTokenizer", "grammar_from", "install"]


def install() -> None:
    """Lets `import llguidance` give this package, in this process.

    Raises:
        RuntimeError: another llguidance was imported before.
    """
    this = sys.modules[__name__]
    if sys.modules.setdefault("llguidance", this) is not this:
        raise RuntimeError("llguidance was imported already: call install() before the first import of it")
    # So that `import llguidance.torch` finds the module of this package.
    from . import hf, numpy, torch  # noqa: F401, PLC0415

    for name in ("hf", "numpy", "torch"):
        sys.modules[f"llguidance.{name}"] = sys.modules[f"{__name__}.{name}"]


class LLTokenizer:
    """A vocabulary, with the tokenizer that it is from.

    Args:
        tokenizer: the text of a tokenizer.json, its path or folder, or an object with `tokens` (bytes of each),
            `eos_token_id` and maybe `special_token_ids`, that gives the tokens of a text when called.
        n_vocab: the width of the model's logits.
        eos_token: the token or tokens that end a text, instead of the tokenizer's.
        slices: has no effect.

    Raises:
        ValueError: no token that ends a text is known; give eos_token.
    """

    def __init__(
        self,
        tokenizer: Any,
        n_vocab: int | None = None,
        eos_token: int | Sequence[int] | None = None,
        slices: Sequence[str] | None = None,
    ) -> None:
        stops = [eos_token] if isinstance(eos_token, int) else eos_token and list(eos_token)
        self._source = tokenizer
        self._encoder: Any = None
        if isinstance(tokenizer, str) and tokenizer.lstrip().startswith("{"):
            self._info = _formwork.TokenizerInfo.from_tokenizer_json(
                tokenizer, vocab_size=n_vocab, stop_token_ids=stops
            )
        elif isinstance(tokenizer, str):
            self._info = _formwork.TokenizerInfo.from_path(
                tokenizer, vocab_size=n_vocab, stop_token_ids=stops
            )
        else:
            self._info = _formwork.TokenizerInfo(
                list(tokenizer.tokens),
                vocab_size=n_vocab,
                stop_token_ids=stops or [tokenizer.eos_token_id],
                special_token_ids=list(getattr(tokenizer, "special_token_ids", [])),
            )
        self._compiler = _formwork.GrammarCompiler(self._info)
        self._special = set(self._info.special_token_ids)

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""
        return self._info.vocab_size

    @property
    def eos_token(self) -> int:
        """The first token that ends a text."""
        return self.eos_tokens[0]

    @property
    def eos_tokens(self) -> list[int]:
        """The tokens that end a text, the given one first."""
        return self._info.stop_token_ids

    def is_special_token(self, token: int) -> bool:
        """True for a control token."""
        return token in self._special

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        """The bytes of tokens."""
        return b"".join(self._info.token_bytes(token) for token in tokens)

    def decode_str(self, tokens: Sequence[int]) -> str:
        """The text of tokens; U+FFFD stands for what is no UTF-8."""
        return self.decode_bytes(tokens).decode(errors="replace")

    def tokenize_str(self, text: str, *, parse_special: bool = False) -> list[int]:
        """The tokens of a text, by the tokenizer itself. Imports tokenizers.

        Raises:
            NotImplementedError: parse_special.
        """
        if parse_special:
            raise NotImplementedError("parse_special is True, but only text is tokenized: leave it False")
        if not isinstance(self._source, str):
            return list(self._source(text))
        if self._encoder is None:
            import pathlib

            import tokenizers

            if self._source.lstrip().startswith("{"):
                self._encoder = tokenizers.Tokenizer.from_str(self._source)
            else:
                path = pathlib.Path(self._source)
                path = path / "tokenizer.json" if path.is_dir() else path
                self._encoder = tokenizers.Tokenizer.from_file(str(path))
        return list(self._encoder.encode(text, add_special_tokens=False).ids)


_JSON_OPTIONS = {"whitespace_flexible", "item_separator", "key_separator", "whitespace_pattern"}


def _json_options(given: dict[str, Any]) -> dict[str, Any]:
    """Options of `compile_json_schema` for those of llguidance."""
    if unknown := {name for name, value in given.items() if value and name not in _JSON_OPTIONS}:
        raise ValueError(f"x-guidance has {sorted(unknown)}, but Formwork knows {sorted(_JSON_OPTIONS)}")
    if pattern := given.get("whitespace_pattern"):
        return {"whitespace_pattern": pattern}
    separators = [given.get("item_separator", ","), given.get("key_separator", ":")]
    if given.get("whitespace_flexible", True):
        return {"whitespace": "flexible", **({"separators": separators} if separators != [",", ":"] else {})}
    return {"whitespace": "compact", "separators": separators}


def _compile(compiler: _formwork.GrammarCompiler, grammar: str) -> _formwork.CompiledGrammar:
    if not grammar.lstrip().startswith("{"):
        return compiler.compile_lark(without_reports(grammar))
    grammars = json.loads(grammar).get("grammars")
    if not isinstance(grammars, list) or len(grammars) != 1:
        raise ValueError('grammar must be Lark, or {"grammars": [...]} with one grammar')
    (only,) = grammars
    if only.get("lark_grammar") is not None:
        return compiler.compile_lark(without_reports(only["lark_grammar"]))
    schema = only.get("json_schema")
    options: dict[str, Any] = {}
    if isinstance(schema, dict) and "x-guidance" in schema:
        schema = dict(schema)
        options = schema.pop("x-guidance")
    return compiler.compile_json_schema(schema, **_json_options(options))


_LIMITS = (_formwork.CompileError, _formwork.MatcherError, TypeError, ValueError, IndexError)


class LLMatcher:
    """One request's place in a grammar.

    Args:
        tokenizer: the vocabulary.
        grammar: Lark, or what a `grammar_from_...` gives.
        log_level, limits: have no effect.
    """

    def __init__(
        self, tokenizer: LLTokenizer, grammar: str, *, log_level: int = 1, limits: Any = None
    ) -> None:
        self._tokenizer = tokenizer
        self._error = ""
        self._matcher: _formwork.GrammarMatcher | None = None
        try:
            self._matcher = _formwork.GrammarMatcher(_compile(tokenizer._compiler, grammar))
        except _LIMITS as error:
            self._fail(error)

    def _fail(self, error: object) -> None:
        self._error = str(error)

    @staticmethod
    def grammar_from_json_schema(
        schema: str | dict[str, Any],
        defaults: dict[str, Any] | None = None,
        overrides: dict[str, Any] | None = None,
    ) -> str:
        """A grammar of a JSON Schema; options are read as defaults, then the schema's x-guidance, then overrides.

        Raises:
            ValueError: it is no JSON.
        """
        value = json.loads(schema) if isinstance(schema, str) else schema
        if (defaults or overrides) and isinstance(value, dict):
            own = value.get("x-guidance") or {}
            value = {**value, "x-guidance": {**(defaults or {}), **own, **(overrides or {})}}
        return json.dumps({"grammars": [{"json_schema": value}]})

    @staticmethod
    def grammar_from_lark(lark: str) -> str:
        """A grammar of Lark: the text as it is."""
        return lark

    @staticmethod
    def grammar_from_regex(regex: str) -> str:
        """A grammar of a regular expression."""
        return json.dumps({"grammars": [{"lark_grammar": "start: /" + regex.replace("/", "\\/") + "/"}]})

    @staticmethod
    def validate_grammar(grammar: str, tokenizer: LLTokenizer | None = None, *, limits: Any = None) -> str:
        """Why a grammar can't be enforced, or nothing. Without a tokenizer over single bytes."""
        if tokenizer is None:
            vocab = [bytes([byte]) for byte in range(256)] + [b"<eos>"]
            compiler = _formwork.GrammarCompiler(_formwork.TokenizerInfo(vocab, stop_token_ids=[256]))
        else:
            compiler = tokenizer._compiler
        try:
            _compile(compiler, grammar)
        except _LIMITS as error:
            return str(error)
        return ""

    def is_error(self) -> bool:
        """True once a grammar could not be enforced, or a token was not allowed."""
        return bool(self._error)

    def get_error(self) -> str:
        """Why the matcher is in error, or nothing."""
        return self._error

    def get_grammar_warnings(self) -> list[str]:
        """None: what can't be enforced is an error."""
        return []

    def deep_copy(self) -> LLMatcher:
        """A matcher that goes its own way from here."""
        copied = LLMatcher.__new__(LLMatcher)
        copied._tokenizer, copied._error = self._tokenizer, self._error
        copied._matcher = self._matcher and self._matcher.fork()
        return copied

    def is_accepting(self) -> bool:
        """True where the text could stop."""
        if self._error or self._matcher is None:
            return False
        return self._matcher.is_terminated() or self._matcher.is_completed()

    def _only_stops(self) -> bool:
        """True where nothing but a stop token may come."""
        matcher = self._matcher
        if matcher is None or not matcher.is_completed():
            return False
        return set(matcher.next_token_ids()) <= set(matcher.stop_token_ids)

    def is_stopped(self) -> bool:
        """True where no more than a stop token is taken: at the end, or in error."""
        return self.stop_reason() != "NotStopped"

    def stop_reason(self) -> str:
        """InternalError, EndOfSentence (a stop token came), NoExtension (nothing else could) or NotStopped."""
        if self._error or self._matcher is None:
            return "InternalError"
        if self._matcher.is_terminated():
            return "EndOfSentence"
        return "NoExtension" if self._only_stops() else "NotStopped"

    def consume_token(self, sampled_token: int) -> bool:
        """Takes in a token. False, and an error from then on, where it isn't allowed."""
        return self.consume_tokens([sampled_token])

    def consume_tokens(self, sampled_tokens: Sequence[int]) -> bool:
        """Takes in tokens. False, and an error from then on, at the first that isn't allowed."""
        if self._error:
            return False
        taken = self.try_consume_tokens(sampled_tokens)
        if taken < len(sampled_tokens) and not self._error:
            token = sampled_tokens[taken]
            self._fail(f"token {token} is not allowed by the grammar")
        return not self._error

    def try_consume_tokens(self, tokens: Sequence[int]) -> int:
        """Takes in tokens up to the first that isn't allowed; how many that were."""
        if self._error or self._matcher is None:
            return 0
        taken = 0
        for token in tokens:
            try:
                if token in self._matcher.stop_token_ids and self.is_stopped():
                    taken += 1
                    continue
                if self._matcher.is_terminated() or not self._matcher.accept_token(token):
                    break
            except IndexError:
                break
            except _formwork.MatcherError as error:
                self._fail(error)
                break
            taken += 1
        return taken

    def validate_tokens(self, tokens: Sequence[int]) -> int:
        """How many of the tokens could be taken in. Nothing changes."""
        if self._error or self._matcher is None or self.is_stopped():
            return 0
        try:
            known = [token for token in tokens if 0 <= token < self._tokenizer.vocab_size]
            return min(self._matcher.validate_tokens(known), len(known)) if known == list(tokens) else 0
        except _formwork.MatcherError as error:
            self._fail(error)
            return 0

    def rollback(self, num_tokens: int) -> bool:
        """Takes back the last tokens. False, and an error from then on, where there were fewer."""
        if self._error or self._matcher is None:
            return False
        try:
            self._matcher.rollback(num_tokens)
        except ValueError as error:
            self._fail(error)
        return not self._error

    def reset(self) -> bool:
        """Back to the start; False in error, which stays."""
        if self._error or self._matcher is None:
            return False
        self._matcher.reset()
        return True

    def compute_ff_tokens(self) -> list[int]:
        """The tokens that must come next, the one that ends the text left out."""
        if self._error or self._matcher is None:
            return []
        forced = self._matcher.forced_tokens()
        stops = set(self._matcher.stop_token_ids)
        return forced[: next((at for at, token in enumerate(forced) if token in stops), len(forced))]

    def compute_ff_bytes(self) -> bytes:
        """The text that must come next."""
        if self._error or self._matcher is None:
            return b""
        return self._matcher.find_jump_forward_string().encode()

    def compute_bitmask(self) -> bytes:
        """The mask: bit t % 8 of byte t // 8 is 1 where token t is allowed."""
        mask = bytearray(4 * _formwork.bitmask_words(self._tokenizer.vocab_size))
        self._fill(memoryview(mask).cast("i"))
        return bytes(mask)

    def compute_logit_bias(self) -> bytes:
        """A byte for each token: 200 where it is allowed, else 0."""
        bias = bytearray(self._tokenizer.vocab_size)
        for token in self._allowed():
            bias[token] = 200
        return bytes(bias)

    def _allowed(self) -> list[int]:
        if self._error or self._matcher is None or self._matcher.is_terminated():
            return self._tokenizer.eos_tokens
        return self._matcher.next_token_ids()

    def _fill(self, row: Any) -> None:
        """Writes the mask into a row of int32 words. In error, and at the end, no more than stop tokens."""
        if not (self._error or self._matcher is None or self._matcher.is_terminated()):
            try:
                self._matcher.fill_next_token_bitmask(row)
                return
            except _formwork.MatcherError as error:
                self._fail(error)
        for word in range(len(row)):
            row[word] = 0
        for token in self._tokenizer.eos_tokens:
            # Bit 31 is the sign.
            row[token // 32] |= -(1 << 31) if token % 32 == 31 else 1 << token % 32


class LLExecutor:
    """Many matchers in one call. `num_threads` has no effect."""

    def __init__(self, num_threads: int | None = None) -> None:
        pass

    def consume_token_par(self, matchers: Sequence[tuple[LLMatcher, int]]) -> list[bool]:
        """Takes in a token by each matcher."""
        return [matcher.consume_token(token) for matcher, token in matchers]

    def _fill(self, matchers: Sequence[tuple[LLMatcher, int]], bitmask: Any) -> None:
        """Writes a row for each matcher: those at work in one native call without the GIL."""
        native, rows = [], []
        for matcher, row in matchers:
            inner = matcher._matcher
            if matcher._error or inner is None or inner.is_terminated():
                matcher._fill(bitmask[row])
            else:
                native.append(inner)
                rows.append(row)
        try:
            _formwork.fill_next_token_bitmask_batch(native, bitmask, rows)
        except _formwork.MatcherError:
            for matcher, row in matchers:
                matcher._fill(bitmask[row])


def grammar_from(format: str, text: Any) -> str:
    """A grammar of a kind: lark, json_schema or json, regex, choice, or llguidance (as it is).

    Raises:
        ValueError: another kind.
    """
    if format in ("lark", "llguidance"):
        return str(text)
    if format in ("json_schema", "json"):
        return LLMatcher.grammar_from_json_schema(text)
    if format == "regex":
        return LLMatcher.grammar_from_regex(text)
    if format == "choice":
        choices = json.loads(text) if isinstance(text, str) else text
        return "start: " + " | ".join(json.dumps(choice) for choice in choices)
    raise ValueError(f"format is {format!r}, but it must be lark, json_schema, json, regex, choice or llguidance")
