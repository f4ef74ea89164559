"""llguidance.numpy: masks in numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from formwork.grammar import allocate_token_bitmask
from formwork.grammar import apply_token_bitmask_inplace as _apply

from . import LLExecutor, LLMatcher

__all__ = [
    "allocate_token_bitmask",
    "apply_token_bitmask_inplace",
    "consume_token_par",
    "fill_next_token_bitmask",
    "fill_next_token_bitmask_par",
    "get_bitmask_shape",
]


def get_bitmask_shape(batch_size: int, vocab_size: int) -> tuple[int, int]:
    """`(batch_size, ceil(vocab_size / 32))`."""
    return batch_size, -(-vocab_size // 32)


def apply_token_bitmask_inplace(logits: Any, mask: Any) -> None:
    """Sets logits to minus infinity whose bit is 0, and those beyond the mask: `[batch, width]` or one row."""
    _apply(logits, mask)


def fill_next_token_bitmask(interp: LLMatcher, bitmask: Any, index: int = 0) -> None:
    """Writes the next token's mask into a row."""
    interp._fill(bitmask[index])


def fill_next_token_bitmask_par(
    executor: LLExecutor, matchers: Sequence[tuple[LLMatcher, int]], bitmask: Any
) -> None:
    """Writes the row of each matcher."""
    executor._fill(matchers, bitmask)


def consume_token_par(executor: LLExecutor, matchers: Sequence[tuple[LLMatcher, int]]) -> list[bool]:
    """Takes in a token by each matcher."""
    return executor.consume_token_par(matchers)
