"""llguidance.torch: masks in tensors. Imports torch when a tensor is asked for."""

from __future__ import annotations

from typing import Any

from .numpy import (
    consume_token_par,
    fill_next_token_bitmask,
    fill_next_token_bitmask_par,
    get_bitmask_shape,
)

__all__ = [
    "allocate_token_bitmask",
    "apply_token_bitmask_inplace",
    "consume_token_par",
    "fill_next_token_bitmask",
    "fill_next_token_bitmask_par",
    "get_bitmask_shape",
]


def allocate_token_bitmask(batch_size: int, vocab_size: int) -> Any:
    """A tensor on the CPU in which every token is allowed, pinned where CUDA is there."""
    import torch

    shape = get_bitmask_shape(batch_size, vocab_size)
    return torch.full(shape, -1, dtype=torch.int32, pin_memory=torch.cuda.is_available())


def apply_token_bitmask_inplace(logits: Any, mask: Any) -> None:
    """Sets logits to minus infinity whose bit is 0, and those beyond the mask, on any device."""
    from formwork.grammar.hf import apply_bitmask

    rows = logits.unsqueeze(0) if logits.dim() == 1 else logits
    apply_bitmask(rows, mask.unsqueeze(0) if mask.dim() == 1 else mask)
