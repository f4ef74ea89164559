"""The kernels of `apply_token_bitmask_inplace` by XGrammar's names: here all are that function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .bitmask import apply_token_bitmask_inplace

if TYPE_CHECKING:
    import torch

__all__ = [
    "apply_token_bitmask_inplace_cpu",
    "apply_token_bitmask_inplace_cuda",
    "apply_token_bitmask_inplace_torch",
    "apply_token_bitmask_inplace_torch_compile",
    "apply_token_bitmask_inplace_triton",
]


def apply_token_bitmask_inplace_cpu(
    logits: torch.Tensor,
    bitmask: torch.Tensor,
    vocab_size: int | None = None,
    indices: Sequence[int] | None = None,
) -> None:
    """`apply_token_bitmask_inplace`, with arguments by place."""
    apply_token_bitmask_inplace(logits, bitmask, vocab_size=vocab_size, indices=indices)


apply_token_bitmask_inplace_cuda = apply_token_bitmask_inplace_cpu
apply_token_bitmask_inplace_torch = apply_token_bitmask_inplace_cpu
apply_token_bitmask_inplace_torch_compile = apply_token_bitmask_inplace_cpu
apply_token_bitmask_inplace_triton = apply_token_bitmask_inplace_cpu
