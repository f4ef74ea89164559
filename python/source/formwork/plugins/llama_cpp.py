"""A logits processor for llama-cpp-python: `llm(prompt, logits_processor=[LogitsProcessor(grammar)])`."""

from __future__ import annotations

from typing import Any

from formwork.grammar import (
    CompiledGrammar,
    GrammarMatcher,
    TokenizerInfo,
    allocate_token_bitmask,
    apply_token_bitmask_inplace,
)
from formwork.grammar._rows import Rows

from . import _host

__all__ = ["LogitsProcessor", "tokenizer_info"]


def tokenizer_info(llama: Any) -> TokenizerInfo:
    """The vocabulary of a `llama_cpp.Llama`, from its GGUF file, as wide as its logits.

    Raises:
        ImportError: llama-cpp-python is not installed, or in another series than the one that this is made for.
        ValueError: Formwork doesn't know the file's tokenizer.
    """
    _host.require("llama-cpp-python")
    return TokenizerInfo.from_path(llama.model_path, vocab_size=llama.n_vocab())


class LogitsProcessor:
    """Sets the scores of all tokens to minus infinity that the grammar doesn't allow next.

    For one completion; call `reset()` or make another for the next. Not with a draft model.

    llama.cpp calls it from C, where Python prints an exception and goes on. So on an error the scores allow no
    more than stop tokens, which ends the text, and `error` holds the exception.

    Args:
        grammar: of the vocabulary that `tokenizer_info(llama)` gives.
        stop_token_ids: instead of the vocabulary's stop tokens.

    Raises:
        ImportError: llama-cpp-python is not installed, or in another series than the one that this is made for.
        TypeError: grammar is no CompiledGrammar.
    """

    def __init__(self, grammar: CompiledGrammar, *, stop_token_ids: list[int] | None = None) -> None:
        _host.require("llama-cpp-python")
        self._rows = Rows(grammar, stop_token_ids)
        self._stop_token_ids = stop_token_ids or grammar.tokenizer_info.stop_token_ids
        self._bitmask = allocate_token_bitmask(1, self._rows.vocab_size)
        self.error: Exception | None = None

    def reset(self) -> None:
        """Back to the start, for another completion."""
        self._rows.reset()
        self.error = None

    @property
    def matcher(self) -> GrammarMatcher | None:
        """The matcher, once the first token was asked for."""
        return next(iter(self._rows.matchers), None)

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Masks `scores` in place, after taking in the token since the last call.

        Args:
            input_ids: the text so far, an array `[length]`.
            scores: an array `[width]` of float32.

        Raises:
            ValueError: more than one token since the last call, a token that the mask did not allow, or scores
                narrower than the vocabulary.
            MatcherError: a limit.
        """
        try:
            self._rows.advance(1, len(input_ids), len(scores), lambda: [int(input_ids[-1])])
            self._rows.fill(self._bitmask)
            if scores.flags.c_contiguous:
                apply_token_bitmask_inplace(scores, self._bitmask)
            else:
                # llama.cpp's own records of an id, a logit and a probability.
                masked = scores.copy()
                apply_token_bitmask_inplace(masked, self._bitmask)
                scores[:] = masked
        except Exception as error:
            self.error = error
            stops = [token_id for token_id in self._stop_token_ids if token_id < len(scores)]
            scores[:] = -float("inf")
            scores[stops] = 0.0
            raise
        return scores
