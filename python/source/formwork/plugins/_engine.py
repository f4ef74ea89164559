"""A request's matcher inside an engine that serves many: its failure is that request's alone."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from formwork.grammar import (
    CompiledGrammar,
    GrammarMatcher,
    MatcherError,
    fill_next_token_bitmask_batch,
)

__all__ = ["Request", "fill_rows"]

logger = logging.getLogger(__name__)


class Request:
    """A matcher, and the limit that it met.

    Engines take an exception of a mask for their own and stop. So a limit is kept as `failure`: the mask allows
    no more than stop tokens, no token is accepted, and the engine ends the request.

    Args:
        grammar: the request's grammar.
        stop_token_ids: instead of the vocabulary's stop tokens.
    """

    def __init__(self, grammar: CompiledGrammar, stop_token_ids: list[int] | None = None) -> None:
        self.grammar = grammar
        self.stop_token_ids = stop_token_ids
        self.matcher = GrammarMatcher(grammar, override_stop_tokens=stop_token_ids)
        self.failure: MatcherError | None = None

    def accept_token(self, token_id: int) -> bool:
        """Accepts a token. False where it isn't allowed, is no id, or a limit was met."""
        if self.failure is not None:
            return False
        try:
            return self.matcher.accept_token(token_id)
        except IndexError:
            return False
        except MatcherError as failure:
            self._fail(failure)
            return False

    def fill(self, bitmask: Any, row: int) -> None:
        """Writes the next token's mask into a row of `bitmask`, `[rows, words]` of int32."""
        if self.failure is None:
            try:
                self.matcher.fill_next_token_bitmask(bitmask, row)
                return
            except MatcherError as failure:
                self._fail(failure)
        words: dict[int, int] = {}
        for token_id in self.matcher.stop_token_ids:
            # Bit 31 is the sign.
            bit = -(1 << 31) if token_id % 32 == 31 else 1 << token_id % 32
            words[token_id // 32] = words.get(token_id // 32, 0) | bit
        bitmask[row] = 0
        for word, bits in words.items():
            bitmask[row, word] = bits

    def rollback(self, num_tokens: int) -> None:
        """Takes back the last accepted tokens."""
        self.matcher.rollback(num_tokens)

    def reset(self) -> None:
        """Back to the start."""
        self.matcher.reset()
        self.failure = None

    def _fail(self, failure: MatcherError) -> None:
        self.failure = failure
        logger.error("a grammar met a limit, so its request ends: %s", failure)


def fill_rows(requests: Sequence[Request], bitmask: Any, rows: list[int]) -> None:
    """Writes a row for each request: in one native call without the GIL, or one by one after a limit."""
    if all(request.failure is None for request in requests):
        try:
            fill_next_token_bitmask_batch([request.matcher for request in requests], bitmask, rows)
            return
        except MatcherError:
            pass
    for request, row in zip(requests, rows, strict=True):
        request.fill(bitmask, row)
