"""Formwork's grammar engine: which tokens may come next, exactly.

A `GrammarCompiler` belongs to a vocabulary (`TokenizerInfo`) and compiles grammars; a `GrammarMatcher` is one
request's place in a `CompiledGrammar`. Masks go into torch tensors, numpy arrays and other memory without a
copy. Neither torch nor transformers is imported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._native import (
    CancelFlag,
    CompiledGrammar,
    CompileError,
    GrammarCompiler,
    GrammarMatcher,
    MatcherError,
    TokenizerInfo,
    __version__,
    accept_token_batch,
    apply_token_bitmask_inplace,
    fill_next_token_bitmask_batch,
)

if TYPE_CHECKING:
    import numpy

__all__ = [
    "CancelFlag",
    "CompileError",
    "CompiledGrammar",
    "GrammarCompiler",
    "GrammarMatcher",
    "MatcherError",
    "TokenizerInfo",
    "__version__",
    "accept_token_batch",
    "allocate_token_bitmask",
    "apply_token_bitmask_inplace",
    "bitmask_words",
    "compile_async",
    "fill_next_token_bitmask_batch",
]


def bitmask_words(vocab_size: int) -> int:
    """Words of one row of a bitmask: ceil(vocab_size / 32)."""
    return -(-vocab_size // 32)


def allocate_token_bitmask(batch: int, vocab_size: int) -> numpy.ndarray:
    """A numpy array `[batch, ceil(vocab_size / 32)]` of int32 in which every token is allowed.

    A torch tensor does as well: `torch.full((batch, bitmask_words(vocab_size)), -1, dtype=torch.int32)`.

    Raises:
        ValueError: a negative size.
        ModuleNotFoundError: numpy is not installed.
    """
    import numpy

    if batch < 0 or vocab_size < 0:
        raise ValueError(f"batch and vocab_size must be at least 0, not {batch} and {vocab_size}")
    return numpy.full((batch, bitmask_words(vocab_size)), -1, dtype=numpy.int32)


_METHODS = {
    "json_schema": "compile_json_schema",
    "json_object": "compile_json_object",
    "regex": "compile_regex",
    "choice": "compile_choice",
    "grammar": "compile_grammar",
    "ebnf": "compile_ebnf",
    "lark": "compile_lark",
    "structural_tag": "compile_structural_tag",
}


async def compile_async(
    compiler: GrammarCompiler, kind: str, *sources: Any, **options: Any
) -> CompiledGrammar:
    """Compiles in a thread, so that the event loop goes on; cancelling the task stops the compilation.

    Args:
        compiler: the compiler.
        kind: json_schema, json_object, regex, choice, grammar, ebnf, lark or structural_tag.
        *sources: what the method `compile_...` of that kind takes.
        **options: its options.

    Raises:
        ValueError: another kind.
        CompileError: as the method.
    """
    if kind not in _METHODS:
        raise ValueError(f"kind is {kind!r}, but it must be one of {', '.join(_METHODS)}")
    cancel = CancelFlag()
    method = getattr(compiler, _METHODS[kind])
    try:
        return await asyncio.to_thread(method, *sources, cancel=cancel, **options)
    except asyncio.CancelledError:
        cancel.cancel()
        raise


def _restore_grammar(
    compiler: GrammarCompiler,
    method: str,
    arguments: Sequence[Any],
    options: Mapping[str, Any] | None,
) -> CompiledGrammar:
    """A pickled grammar, compiled again."""
    if method not in _METHODS.values():
        raise ValueError(f"a pickled grammar names the method {method!r}, which there is not")
    return getattr(compiler, method)(*arguments, **(options or {}))
