"""What tests ask: does a grammar accept a text, and which tokens does a mask allow."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .compiler import GrammarCompiler
from .grammar import Grammar
from .matcher import GrammarMatcher
from .tokenizer_info import TokenizerInfo

if TYPE_CHECKING:
    import torch

__all__ = ["bitmask_to_bool_mask", "bool_mask_to_bitmask"]


def _checked(bitmask: torch.Tensor) -> torch.Tensor:
    import torch

    if bitmask.device.type != "cpu":
        raise ValueError(f"the bitmask must be on the CPU, not on {bitmask.device}")
    if bitmask.dtype != torch.int32:
        raise ValueError(f"the bitmask must be of int32, not {bitmask.dtype}")
    return torch.atleast_2d(bitmask)


def bitmask_to_bool_mask(bit_mask: torch.Tensor, vocab_size: int | None = None) -> torch.Tensor:
    """`[rows, vocab_size]` of bool from a bitmask `[rows, words]` of int32.

    Raises:
        ValueError: not on the CPU or not of int32; vocab_size is more than the mask has bits.
    """
    import torch

    bit_mask = _checked(bit_mask)
    width = bit_mask.shape[1] * 32
    if vocab_size is not None and vocab_size > width:
        raise ValueError(f"vocab_size is {vocab_size}, but the bitmask has {width} bits a row")
    bits = bit_mask.unsqueeze(-1) >> torch.arange(32, dtype=torch.int32) & 1
    return bits.bool().flatten(1)[:, :vocab_size]


def bool_mask_to_bitmask(bool_mask: torch.Tensor) -> torch.Tensor:
    """A bitmask `[rows, ceil(tokens / 32)]` of int32 from `[rows, tokens]` of bool."""
    import torch

    rows, tokens = bool_mask.shape
    padded = torch.zeros((rows, math.ceil(tokens / 32) * 32), dtype=torch.int64)
    padded[:, :tokens] = bool_mask
    words = (padded.view(rows, -1, 32) << torch.arange(32)).sum(-1)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def _get_masked_tokens_from_bitmask(bitmask: torch.Tensor, vocab_size: int, index: int = 0) -> list[int]:
    """Ids that a row of the mask forbids."""
    allowed = bitmask_to_bool_mask(bitmask, vocab_size)[index]
    return (~allowed).nonzero().flatten().tolist()


def _is_single_token_bitmask(bitmask: torch.Tensor, vocab_size: int, index: int = 0) -> tuple[bool, int]:
    """True and its id if a row allows one token alone, else False and -1."""
    allowed = bitmask_to_bool_mask(bitmask, vocab_size)[index].nonzero().flatten().tolist()
    return (True, allowed[0]) if len(allowed) == 1 else (False, -1)


def _get_matcher_from_grammar_and_tokenizer_info(
    grammar: Grammar | str, tokenizer_info: TokenizerInfo | None = None, **kwargs: Any
) -> GrammarMatcher:
    """A matcher of a Grammar or EBNF; without a vocabulary it takes text alone."""
    compiler = GrammarCompiler(tokenizer_info or TokenizerInfo([]), cache_enabled=False)
    return GrammarMatcher(compiler.compile_grammar(grammar), **kwargs)


def _get_matcher_from_grammar(grammar: Grammar | str, **kwargs: Any) -> GrammarMatcher:
    """A matcher of text alone, at its end once nothing can follow."""
    return _get_matcher_from_grammar_and_tokenizer_info(grammar, terminate_without_stop_token=True, **kwargs)


def _is_grammar_accept_string(
    grammar: Grammar | str,
    input_str: str | bytes,
    *,
    debug_print: bool = False,
    print_time: bool = False,
    require_termination: bool = True,
) -> bool:
    """True if a Grammar or EBNF has the text, or with require_termination=False one that begins so."""
    matcher = _get_matcher_from_grammar(grammar)
    return matcher.accept_string(input_str) and (matcher.is_terminated() or not require_termination)
