"""Masks as tensors: made, reset, and applied to logits."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from formwork import grammar as _formwork

if TYPE_CHECKING:
    import torch

_BACKENDS = ("auto", "cpu", "cuda", "triton", "torch_compile", "torch_native")


def get_bitmask_shape(batch_size: int, vocab_size: int) -> tuple[int, int]:
    """`(batch_size, ceil(vocab_size / 32))`."""
    return batch_size, _formwork.bitmask_words(vocab_size)


def allocate_token_bitmask(batch_size: int, vocab_size: int) -> torch.Tensor:
    """A tensor on the CPU in which every token is allowed: `[batch_size, ceil(vocab_size / 32)]` of int32."""
    import torch

    return torch.full(get_bitmask_shape(batch_size, vocab_size), -1, dtype=torch.int32)


def reset_token_bitmask(bitmask: torch.Tensor) -> None:
    """Allows every token."""
    bitmask.fill_(-1)


def apply_token_bitmask_inplace(
    logits: torch.Tensor,
    bitmask: torch.Tensor,
    *,
    vocab_size: int | None = None,
    indices: Sequence[int] | None = None,
    backend: str = "auto",
) -> None:
    """Sets logits to minus infinity whose bit is 0; beyond the mask, and `vocab_size`, they stay.

    `logits` and `bitmask` are `[batch, ...]` or one row, on any device. `indices` names rows of both.
    `backend` has no effect: the CPU's logits are masked by the engine, others by torch.

    Raises:
        ValueError: bitmask is on another device than logits; batches differ and indices is None; an unknown
            backend.
    """
    import torch

    if backend not in _BACKENDS:
        raise ValueError(f"backend is {backend!r}, but it must be one of {', '.join(_BACKENDS)}")
    if bitmask.device != logits.device:
        raise ValueError(
            f"logits are on {logits.device} and bitmask on {bitmask.device}: move it by bitmask.to(logits.device)"
        )
    width = min(logits.shape[-1], bitmask.shape[-1] * 32)
    if vocab_size is not None:
        width = min(width, vocab_size)
    elif width < logits.shape[-1]:
        warnings.warn(
            f"logits beyond the {width} tokens of bitmask are left unmasked: give vocab_size, or allocate the "
            f"bitmask for {logits.shape[-1]} tokens",
            stacklevel=2,
        )
    rows, masks = torch.atleast_2d(logits), torch.atleast_2d(bitmask)
    if rows.shape[0] != masks.shape[0] and indices is None:
        raise ValueError(f"logits have {rows.shape[0]} rows and bitmask {masks.shape[0]}: name indices")
    if (
        logits.device.type == "cpu"
        and rows.is_contiguous()
        and not logits.requires_grad
        and width == rows.shape[-1]
    ):
        _formwork.apply_token_bitmask_inplace(rows, masks, None if indices is None else list(indices))
        return
    chosen = torch.as_tensor(
        range(rows.shape[0]) if indices is None else indices, device=logits.device
    ).long()
    shifts = torch.arange(32, dtype=torch.int32, device=logits.device)
    allowed = (masks[chosen].unsqueeze(-1) >> shifts & 1).bool().flatten(1)[:, :width]
    rows[chosen, :width] = rows[chosen, :width].masked_fill(~allowed, float("-inf"))


def fill_by_ids(matcher: _formwork.GrammarMatcher, bitmask: Any, index: int, vocab_size: int) -> None:
    """Writes a matcher's mask into a row as wide as `vocab_size`, without tokens beyond it.

    For vocabularies whose stop token isn't shown: a plain loop, which engines' vocabularies never take.
    """
    words = [0] * _formwork.bitmask_words(vocab_size)
    for token_id in matcher.next_token_ids():
        if token_id < vocab_size:
            words[token_id // 32] |= 1 << token_id % 32
    row = bitmask[index] if len(bitmask.shape) == 2 else bitmask
    for place, word in enumerate(words):
        row[place] = word - (1 << 32) if word >> 31 else word
