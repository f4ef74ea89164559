"""A logits processor for Outlines: `SteerableGenerator.from_processor(model, LogitsProcessor(grammar, model))`.

Imports outlines, of which the processor is a subclass.
"""

from __future__ import annotations

from typing import Any

from formwork.grammar import (
    CompiledGrammar,
    GrammarMatcher,
    allocate_token_bitmask,
    apply_token_bitmask_inplace,
)
from formwork.grammar._rows import Rows

from . import _host

_host.require("outlines")

from outlines.processors.base_logits_processor import OutlinesLogitsProcessor  # noqa: E402

__all__ = ["LogitsProcessor"]


class LogitsProcessor(OutlinesLogitsProcessor):
    """Sets the logits of all tokens to minus infinity that the grammar doesn't allow next.

    Outlines resets it before each generation.

    Args:
        grammar: of a vocabulary no wider than the model's logits.
        model: Outlines' model, of which only `tensor_library_name` is read (torch, numpy or mlx), or that name.
        stop_token_ids: instead of the vocabulary's stop tokens.

    Raises:
        TypeError: grammar is no CompiledGrammar.
        NotImplementedError: Outlines doesn't know the name, or the library isn't installed.
    """

    def __init__(
        self, grammar: CompiledGrammar, model: Any, *, stop_token_ids: list[int] | None = None
    ) -> None:
        self._rows = Rows(grammar, stop_token_ids)
        self._library = model if isinstance(model, str) else model.tensor_library_name
        super().__init__(self._library)

    def reset(self) -> None:
        """Back to the start."""
        self._rows.reset()

    @property
    def matchers(self) -> list[GrammarMatcher]:
        """The matcher of each row, once the first token was asked for."""
        return self._rows.matchers

    def process_logits(self, input_ids: Any, logits: Any) -> Any:
        """The logits `[rows, width]` masked, after taking in the tokens since the last call.

        Args:
            input_ids: `[rows, length]`.

        Raises:
            ValueError: more than one token since the last call, another number of rows, a token that the mask
                did not allow, or logits narrower than the vocabulary.
        """
        rows, length = input_ids.shape
        self._rows.advance(
            rows, length, logits.shape[-1], lambda: [int(input_ids[row, -1]) for row in range(rows)]
        )
        bitmask = allocate_token_bitmask(rows, self._rows.vocab_size)
        self._rows.fill(bitmask)
        if self._library == "torch":
            import torch

            from formwork.grammar.hf import apply_bitmask

            apply_bitmask(logits, torch.from_numpy(bitmask))
            return logits
        if self._library == "mlx":
            from .mlx_lm import apply_bitmask as apply_to_mlx

            return apply_to_mlx(logits, bitmask)
        apply_token_bitmask_inplace(logits, bitmask)
        return logits
