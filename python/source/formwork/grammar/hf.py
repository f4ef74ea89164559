"""Constrained `generate` of transformers: a logits processor. Imports torch, not transformers."""

from __future__ import annotations

from typing import Any

import torch

from ._native import CompiledGrammar, GrammarMatcher, apply_token_bitmask_inplace
from ._rows import Rows

__all__ = ["LogitsProcessor", "apply_bitmask"]


class LogitsProcessor:
    """Sets the logits of all tokens to minus infinity that the grammar doesn't allow next.

    For one call of `generate`, in its `logits_processor=[...]`; call `reset()` or make another for the next.
    Not for beam search, in which rows trade places.

    Args:
        grammar: the grammar of all rows, or a list with one for each row. Its vocabulary must be as wide as
            the logits: `TokenizerInfo.from_huggingface(tokenizer, vocab_size=model.config.vocab_size)`.
        stop_token_ids: instead of the vocabulary's stop tokens.

    Raises:
        TypeError: grammar is neither.
        ValueError: the grammars' vocabularies differ in width, or the list is empty.
    """

    def __init__(
        self,
        grammar: CompiledGrammar | list[CompiledGrammar],
        *,
        stop_token_ids: list[int] | None = None,
    ) -> None:
        self._rows = Rows(grammar, stop_token_ids)

    def reset(self) -> None:
        """Back to the start, for another call of `generate`."""
        self._rows.reset()

    @property
    def matchers(self) -> list[GrammarMatcher]:
        """The matcher of each row, once the first token was asked for."""
        return self._rows.matchers

    def __call__(self, input_ids: Any, scores: torch.Tensor) -> torch.Tensor:
        """Masks `scores` `[batch, vocab_size]` in place, after taking in the tokens since the last call.

        Args:
            input_ids: `[batch, length]`.

        Raises:
            ValueError: more than one token since the last call, another batch, a token that the mask did not
                allow (as when rows trade places), or logits narrower than the vocabulary.
        """
        rows, length = input_ids.shape
        self._rows.advance(rows, length, scores.shape[-1], lambda: input_ids[:, -1].tolist())
        words = -(-self._rows.vocab_size // 32)
        bitmask = torch.empty((rows, words), dtype=torch.int32)
        self._rows.fill(bitmask)
        apply_bitmask(scores, bitmask)
        return scores


def apply_bitmask(scores: torch.Tensor, bitmask: torch.Tensor) -> None:
    """Sets scores to minus infinity whose bit is 0, and those beyond the mask, in place and on any device.

    Args:
        scores: `[rows, width]`, floats.
        bitmask: `[rows, words]`, int32; copied to the device of `scores` where that is another.
    """
    if scores.device.type == "cpu" and scores.is_contiguous() and not scores.requires_grad:
        apply_token_bitmask_inplace(scores, bitmask)
        return
    bitmask = bitmask.to(scores.device)
    shifts = torch.arange(32, dtype=torch.int32, device=scores.device)
    allowed = (bitmask.unsqueeze(-1) >> shifts & 1).bool().flatten(1)
    width = scores.shape[-1]
    if allowed.shape[-1] < width:
        allowed = torch.nn.functional.pad(allowed, (0, width - allowed.shape[-1]))
    scores.masked_fill_(~allowed[:, :width], float("-inf"))
