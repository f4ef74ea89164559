"""Constrained `generate` of transformers."""

from __future__ import annotations

from formwork.grammar import hf as _hf

from ..compiler import CompiledGrammar

__all__ = ["LogitsProcessor"]


class LogitsProcessor(_hf.LogitsProcessor):
    """`formwork.grammar.hf.LogitsProcessor` for this package's grammars; make one for each call of `generate`.

    Args:
        compiled_grammar: the grammar of all rows, or a list with one for each row, or with one for all.

    Raises:
        TypeError: it is neither.
    """

    def __init__(self, compiled_grammar: CompiledGrammar | list[CompiledGrammar]) -> None:
        given = compiled_grammar if isinstance(compiled_grammar, list) else [compiled_grammar]
        for each in given:
            if not isinstance(each, CompiledGrammar):
                raise TypeError(
                    f"compiled_grammar must be a CompiledGrammar or a list of them, not {type(each).__name__}"
                )
        own = [each._compiled for each in given]
        super().__init__(own[0] if len(own) == 1 else own)
