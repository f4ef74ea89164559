"""The rows of a batch and their matchers: what every logits processor does, whatever its tensors are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ._native import CompiledGrammar, GrammarMatcher, fill_next_token_bitmask_batch

__all__ = ["Rows"]


class Rows:
    """A matcher for each row, through one generation that adds a token to each row at a time.

    Args:
        grammar: the grammar of all rows, or a list with one for each row.
        stop_token_ids: instead of the vocabulary's stop tokens.

    Raises:
        TypeError: grammar is neither.
        ValueError: the grammars' vocabularies differ in width, or the list is empty.
    """

    def __init__(
        self,
        grammar: CompiledGrammar | list[CompiledGrammar],
        stop_token_ids: list[int] | None = None,
    ) -> None:
        grammars = grammar if isinstance(grammar, list) else [grammar]
        for each in grammars:
            if not isinstance(each, CompiledGrammar):
                raise TypeError(
                    f"grammar must be a CompiledGrammar or a list of them, not {type(each).__name__}"
                )
        widths = {each.tokenizer_info.vocab_size for each in grammars}
        if len(widths) != 1:
            raise ValueError(
                f"grammar must name at least one, all of one vocabulary, not of {sorted(widths)} tokens"
            )
        self._grammar = grammar
        self._stop_token_ids = stop_token_ids
        self.vocab_size = widths.pop()
        self.reset()

    def reset(self) -> None:
        """Back to the start, for another generation."""
        self.matchers: list[GrammarMatcher] = []
        self._length = 0

    def advance(
        self, rows: int, length: int, width: int, last_token_ids: Callable[[], Sequence[int]]
    ) -> None:
        """Takes in the token that was added to each row since the last call; the first call starts.

        Args:
            rows: how many rows there are.
            length: tokens in each row, the prompt's included or not.
            width: of a row of logits.
            last_token_ids: gives the last token of each row; called if there was a call before.

        Raises:
            ValueError: more than one token since the last call, another number of rows, a token that the mask
                did not allow (as when rows trade places), or logits narrower than the vocabulary.
        """
        if width < self.vocab_size:
            raise ValueError(
                f"scores are {width} wide, but the vocabulary is {self.vocab_size}: give TokenizerInfo the "
                "model's vocab_size"
            )
        if not self.matchers:
            grammars = self._grammar if isinstance(self._grammar, list) else [self._grammar] * rows
            if len(grammars) != rows:
                raise ValueError(f"there are {len(grammars)} grammars for {rows} rows: give one for each")
            self.matchers = [
                GrammarMatcher(each, override_stop_tokens=self._stop_token_ids) for each in grammars
            ]
            self._length = length
            return
        if rows != len(self.matchers) or length != self._length + 1:
            raise ValueError(
                f"input_ids is {rows} x {length} after {len(self.matchers)} x {self._length}: a "
                "LogitsProcessor is for one call of generate, which adds a token to each row at a time; "
                "call reset() before another"
            )
        self._length = length
        for row, (matcher, token_id) in enumerate(zip(self.matchers, last_token_ids(), strict=True)):
            # Rows at their end are padded with any token.
            if not matcher.is_terminated() and not matcher.accept_token(token_id):
                raise ValueError(
                    f"row {row} went on with token {token_id}, which its grammar doesn't allow: beam search "
                    "is not supported"
                )

    def fill(self, bitmask: Any) -> None:
        """Writes each row's mask, without the GIL, into `[rows, ceil(vocab_size / 32)]` of int32."""
        fill_next_token_bitmask_batch(self.matchers, bitmask)
