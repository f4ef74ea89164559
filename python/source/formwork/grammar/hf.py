"""Constrained `generate` of transformers: a logits processor. Imports torch, not transformers."""

from __future__ import annotations

from typing import Any

import torch

from . import (
    CompiledGrammar,
    GrammarMatcher,
    apply_token_bitmask_inplace,
    bitmask_words,
    fill_next_token_bitmask_batch,
)

__all__ = ["LogitsProcessor"]


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
    """

    def __init__(
        self,
        grammar: CompiledGrammar | list[CompiledGrammar],
        *,
        stop_token_ids: list[int] | None = None,
    ) -> None:
        grammars = grammar if isinstance(grammar, list) else [grammar]
        for each in grammars:
            if not isinstance(each, CompiledGrammar):
                raise TypeError(
                    f"grammar must be a CompiledGrammar or a list of them, not {type(each).__name__}"
                )
        self._grammar = grammar
        self._stop_token_ids = stop_token_ids
        self.reset()

    def reset(self) -> None:
        """Back to the start, for another call of `generate`."""
        self._matchers: list[GrammarMatcher] = []
        self._length = 0

    @property
    def matchers(self) -> list[GrammarMatcher]:
        """The matcher of each row, once the first token was asked for."""
        return self._matchers

    def _start(self, rows: int, length: int) -> None:
        grammars = self._grammar if isinstance(self._grammar, list) else [self._grammar] * rows
        if len(grammars) != rows:
            raise ValueError(f"there are {len(grammars)} grammars for {rows} rows: give one for each")
        self._matchers = [
            GrammarMatcher(each, override_stop_tokens=self._stop_token_ids) for each in grammars
        ]
        self._length = length

    def __call__(self, input_ids: Any, scores: torch.Tensor) -> torch.Tensor:
        """Masks `scores` `[batch, vocab_size]` in place, after taking in the tokens since the last call.

        Args:
            input_ids: `[batch, length]`.

        Raises:
            ValueError: more than one token since the last call, another batch, a token that the mask did not
                allow (as when rows trade places), or logits narrower than the vocabulary.
        """
        rows, length = input_ids.shape
        if not self._matchers:
            self._start(rows, length)
        elif rows != len(self._matchers) or length != self._length + 1:
            raise ValueError(
                f"input_ids is {rows} x {length} after {len(self._matchers)} x {self._length}: a "
                "LogitsProcessor is for one call of generate, which adds a token to each row at a time; "
                "call reset() before another"
            )
        else:
            self._length = length
            for row, (matcher, token_id) in enumerate(
                zip(self._matchers, input_ids[:, -1].tolist(), strict=True)
            ):
                # Rows at their end are padded with any token.
                if not matcher.is_terminated() and not matcher.accept_token(token_id):
                    raise ValueError(
                        f"row {row} went on with token {token_id}, which its grammar doesn't allow: beam "
                        "search is not supported"
                    )
        vocab_size = self._matchers[0].compiled_grammar.tokenizer_info.vocab_size
        if scores.shape[-1] < vocab_size:
            raise ValueError(
                f"scores are {scores.shape[-1]} wide, but the vocabulary is {vocab_size}: give "
                "TokenizerInfo.from_huggingface the model's vocab_size"
            )
        bitmask = torch.empty((rows, bitmask_words(vocab_size)), dtype=torch.int32)
        fill_next_token_bitmask_batch(self._matchers, bitmask)
        _apply(scores, bitmask)
        return scores


def _apply(scores: torch.Tensor, bitmask: torch.Tensor) -> None:
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
