"""llguidance.hf: a tokenizer of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import LLTokenizer

__all__ = ["from_tokenizer"]


def from_tokenizer(
    hf_tokenizer: Any,
    n_vocab: int | None = None,
    eos_token: int | Sequence[int] | None = None,
    slices: Sequence[str] | None = None,
) -> LLTokenizer:
    """From a fast tokenizer of transformers; `n_vocab` is the width of the model's logits.

    Raises:
        ValueError: it is no fast one.
    """
    backend = getattr(hf_tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ValueError(f"hf_tokenizer must be a fast tokenizer, not {type(hf_tokenizer).__name__}")
    if eos_token is None:
        eos_token = hf_tokenizer.eos_token_id
    return LLTokenizer(backend.to_str(), n_vocab=n_vocab, eos_token=eos_token, slices=slices)
