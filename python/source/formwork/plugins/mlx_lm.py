"""A logits processor for MLX-LM: `stream_generate(..., logits_processors=[LogitsProcessor(grammar)])`."""

from __future__ import annotations

from typing import Any

from formwork.grammar import CompiledGrammar, GrammarMatcher, allocate_token_bitmask
from formwork.grammar._rows import Rows

from . import _host

__all__ = ["LogitsProcessor", "apply_bitmask"]


class LogitsProcessor:
    """Sets the logits of all tokens to minus infinity that the grammar doesn't allow next.

    For one call of `generate`, `stream_generate` or one sequence of `batch_generate`; call `reset()` or make
    another for the next. Not with a draft model.

    Args:
        grammar: of a vocabulary no wider than the logits:
            `TokenizerInfo.from_huggingface(tokenizer._tokenizer, vocab_size=model.args.vocab_size)`.
        stop_token_ids: instead of the vocabulary's stop tokens.

    Raises:
        ImportError: mlx-lm is not installed, or in another series than the one that this is made for.
        TypeError: grammar is no CompiledGrammar.
    """

    def __init__(self, grammar: CompiledGrammar, *, stop_token_ids: list[int] | None = None) -> None:
        _host.require("mlx-lm")
        self._rows = Rows(grammar, stop_token_ids)
        self._bitmask = allocate_token_bitmask(1, self._rows.vocab_size)

    def reset(self) -> None:
        """Back to the start, for another text."""
        self._rows.reset()

    @property
    def matcher(self) -> GrammarMatcher | None:
        """The matcher, once the first token was asked for."""
        return next(iter(self._rows.matchers), None)

    def __call__(self, tokens: Any, logits: Any) -> Any:
        """New logits, after taking in the token since the last call.

        Args:
            tokens: the text so far, an `mlx.core.array` `[length]`.
            logits: an `mlx.core.array` `[1, width]`.

        Raises:
            ValueError: more than one token since the last call, a token that the mask did not allow, or logits
                narrower than the vocabulary.
        """
        self._rows.advance(1, tokens.shape[-1], logits.shape[-1], lambda: [int(tokens[-1].item())])
        self._rows.fill(self._bitmask)
        return apply_bitmask(logits, self._bitmask)


def apply_bitmask(logits: Any, bitmask: Any) -> Any:
    """New logits in which those are minus infinity whose bit is 0, and those beyond the mask.

    Args:
        logits: an `mlx.core.array` `[rows, width]` of floats.
        bitmask: a numpy array `[rows, words]` of int32. Only its words are copied to the device.
    """
    import mlx.core as mx

    rows, words = bitmask.shape
    shifts = mx.arange(32, dtype=mx.uint32)
    bits = mx.array(bitmask.view("uint32"))[:, :, None] >> shifts & 1
    allowed = bits.reshape(rows, words * 32).astype(mx.bool_)
    width = logits.shape[-1]
    if allowed.shape[-1] < width:
        allowed = mx.pad(allowed, [(0, 0), (0, width - allowed.shape[-1])])
    return mx.where(allowed[:, :width], logits, mx.array(float("-inf"), dtype=logits.dtype))
