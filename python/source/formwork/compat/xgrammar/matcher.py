"""Matchers: one request's place in a grammar, and many at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from formwork import grammar as _formwork

from .bitmask import (
    allocate_token_bitmask,
    apply_token_bitmask_inplace,
    fill_by_ids,
    get_bitmask_shape,
    reset_token_bitmask,
)
from .compiler import CompiledGrammar

if TYPE_CHECKING:
    import torch

__all__ = [
    "BatchGrammarMatcher",
    "GrammarMatcher",
    "allocate_token_bitmask",
    "apply_token_bitmask_inplace",
    "get_bitmask_shape",
    "reset_token_bitmask",
]


def __getattr__(name: str) -> Any:
    if name == "bitmask_dtype":
        import torch

        return torch.int32
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class GrammarMatcher:
    """One request's place in a grammar.

    `max_rollback_tokens` has no effect: there is no limit. `default_temperature` is what `temperature` gives.

    Raises:
        TypeError: compiled_grammar is no CompiledGrammar.
        ValueError: override_stop_tokens is empty, or has an id out of range.
        NotImplementedError: the grammar is in Lark and sets a temperature.
    """

    def __init__(
        self,
        compiled_grammar: CompiledGrammar,
        *,
        override_stop_tokens: int | Sequence[int] | None = None,
        terminate_without_stop_token: bool = False,
        max_rollback_tokens: int = -1,
        default_temperature: float | None = None,
    ) -> None:
        if not isinstance(compiled_grammar, CompiledGrammar):
            raise TypeError(
                f"compiled_grammar must be a CompiledGrammar, not {type(compiled_grammar).__name__}"
            )
        if isinstance(override_stop_tokens, int):
            override_stop_tokens = [override_stop_tokens]
        self._grammar = compiled_grammar
        self._temperature = default_temperature
        # A vocabulary's stop token that isn't shown ends nothing once others are named.
        self._stands_in = compiled_grammar.tokenizer_info._stands_in and not override_stop_tokens
        self._matcher = _formwork.GrammarMatcher(
            compiled_grammar._compiled,
            override_stop_tokens=override_stop_tokens,
        )
        self._terminates_without_stop_token = terminate_without_stop_token
        # What was accepted, where captures are to be read from it.
        self._steps: list[int | bytes] | None = [] if compiled_grammar._has_captures else None

    def accept_token(self, token_id: int, *, debug_print: bool = False) -> bool:
        """Accepts a token; False after the end, or where it isn't allowed.

        Raises:
            IndexError: an id out of range.
        """
        if self._stands_in and token_id >= self._grammar.tokenizer_info.vocab_size:
            raise IndexError(
                f"token_id is {token_id}, but there are {self._grammar.tokenizer_info.vocab_size}"
            )
        accepted = not self._matcher.is_terminated() and self._matcher.accept_token(token_id)
        self._note(token_id)
        return accepted

    def accept_string(self, input_str: str | bytes, *, debug_print: bool = False) -> bool:
        """Accepts text, as one step."""
        accepted = not self._matcher.is_terminated() and self._matcher.accept_string(input_str)
        self._note(input_str.encode() if isinstance(input_str, str) else bytes(input_str))
        return accepted

    def _note(self, step: int | bytes) -> None:
        """Keeps what was accepted, if it was."""
        if self._steps is not None and self._matcher.num_accepted > len(self._steps):
            self._steps.append(step)

    def fill_next_token_bitmask(self, bitmask: Any, index: int = 0, *, debug_print: bool = False) -> bool:
        """Writes the next token's mask into a row of int32; False where it allows every token.

        Raises:
            RuntimeError: the text is at its end.
        """
        if self._matcher.is_terminated():
            raise RuntimeError("the text is at its end, and no token follows it: ask is_terminated() before")
        if self._stands_in:
            fill_by_ids(self._matcher, bitmask, index, self._grammar.tokenizer_info.vocab_size)
            return True
        return self._matcher.fill_next_token_bitmask(bitmask, index)

    def traverse_draft_tree(
        self,
        retrieve_next_token: torch.Tensor,
        retrieve_next_sibling: torch.Tensor,
        draft_tokens: torch.Tensor,
        token_bitmask: torch.Tensor,
        time_threshold: float = -1.0,
        temperatures: torch.Tensor | None = None,
    ) -> bool:
        """Writes the mask after each node of a tree of drafted tokens; the matcher stays where it is.

        Args:
            retrieve_next_token: `[nodes]`: each node's first child, or -1.
            retrieve_next_sibling: `[nodes]`: each node's next sibling, or -1.
            draft_tokens: `[nodes]`: each node's token. The first node is the root, whose token was accepted.
            token_bitmask: `[nodes, words]`; rows of nodes that the grammar refuses stay as they are.
            time_threshold: seconds after which it stops; no bound where it isn't positive.
            temperatures: `[nodes]` of float32, or None.

        Returns:
            False if time ran out.
        """
        end = time.monotonic() + time_threshold if time_threshold > 0 else None
        child, sibling, tokens = (
            each.tolist() for each in (retrieve_next_token, retrieve_next_sibling, draft_tokens)
        )
        if temperatures is not None:
            temperatures.fill_(-1)
        waiting = [(0, self.fork())] if tokens else []
        while waiting:
            if end is not None and time.monotonic() > end:
                return False
            node, before = waiting.pop()
            if node and sibling[node] >= 0:
                waiting.append((sibling[node], before))
            at = before.fork() if node else before
            if node and not at.accept_token(tokens[node]):
                continue
            if temperatures is not None and at._temperature is not None:
                temperatures[node] = at._temperature
            if at._matcher.is_terminated():
                continue
            at.fill_next_token_bitmask(token_bitmask, node)
            if child[node] >= 0:
                waiting.append((child[node], at))
        return True

    def find_jump_forward_string(self) -> str:
        """The text that must come next."""
        return self._matcher.find_jump_forward_string()

    def rollback(self, num_tokens: int = 1) -> None:
        """Takes back the last steps.

        Raises:
            RuntimeError: there were fewer.
        """
        try:
            self._matcher.rollback(num_tokens)
        except ValueError as error:
            raise RuntimeError(str(error)) from None
        if self._steps is not None:
            del self._steps[len(self._steps) - num_tokens :]

    def get_captures(self, *, deduplicate: bool = True) -> list[tuple[str, bytes]]:
        """What the captured rules of a grammar in Lark are in the text so far: name and text, in the order of their ends.

        A rule begins as early as it can and is as long as it can. The text is read anew by each call.

        Raises:
            NotImplementedError: with deduplicate=False; the grammar captures in another way, or can be read in
                too many ways.
        """
        if self._steps is None:
            if self._grammar.grammar._mentions("capture"):
                raise NotImplementedError("captures are supported of grammars in Lark alone")
            return []
        if not deduplicate:
            raise NotImplementedError("deduplicate is False, but each capture is known once")
        is_complete = self._matcher.is_completed() or self._matcher.is_terminated()
        found = self._grammar._captures.read(self._steps, is_complete=is_complete)
        return [(each.name, each.text) for each in found]

    @property
    def temperature(self) -> float | None:
        """The default temperature.

        Raises:
            NotImplementedError: the grammar sets one itself.
        """
        if self._grammar.grammar._mentions("temperature"):
            raise NotImplementedError("a grammar's own temperature isn't supported: set it for the request")
        return self._temperature

    def is_terminated(self) -> bool:
        """True once a stop token was accepted; with terminate_without_stop_token where the text could stop here,
        even if it may go on."""
        if self._terminates_without_stop_token and self._matcher.is_completed():
            return True
        return self._matcher.is_terminated()

    def is_completed(self) -> bool:
        """True where the text could stop here."""
        return self._matcher.is_completed()

    def reset(self) -> None:
        """Back to the start."""
        self._matcher.reset()
        if self._steps is not None:
            self._steps = []

    def fork(self) -> GrammarMatcher:
        """A matcher that goes its own way from here."""
        forked = GrammarMatcher.__new__(GrammarMatcher)
        forked._matcher, forked._grammar = self._matcher.fork(), self._grammar
        forked._temperature, forked._stands_in = self._temperature, self._stands_in
        forked._terminates_without_stop_token = self._terminates_without_stop_token
        forked._steps = None if self._steps is None else list(self._steps)
        return forked

    @property
    def max_rollback_tokens(self) -> int:
        """-1: no limit."""
        return -1

    @property
    def stop_token_ids(self) -> list[int]:
        """Tokens that end the text."""
        return [] if self._stands_in else self._matcher.stop_token_ids

    def _debug_print_internal_state(self) -> str:
        return (
            f"GrammarMatcher(accepted={self._matcher.num_accepted}, next={self.find_jump_forward_string()!r})"
        )


class BatchGrammarMatcher:
    """Many matchers in one call. `max_threads` has no effect.

    Each method raises ValueError where its lists are of different lengths.
    """

    def __init__(self, max_threads: int | str = "auto") -> None:
        if max_threads != "auto" and (not isinstance(max_threads, int) or max_threads < 1):
            raise ValueError(f"max_threads is {max_threads!r}, but it must be 'auto' or at least 1")

    def batch_fill_next_token_bitmask(
        self,
        matchers: Sequence[GrammarMatcher],
        bitmask: Any,
        indices: Sequence[int] | None = None,
        debug_print: bool = False,
    ) -> None:
        """Writes a row for each matcher: its place in the list, or that in `indices`."""
        if any(m._stands_in for m in matchers):
            rows = range(len(matchers)) if indices is None else indices
            for m, row in zip(matchers, rows, strict=True):
                m.fill_next_token_bitmask(bitmask, row)
            return
        _formwork.fill_next_token_bitmask_batch([m._matcher for m in matchers], bitmask, indices)

    @staticmethod
    def batch_fill_temperature(
        matchers: Sequence[GrammarMatcher],
        temperatures: torch.Tensor,
        indices: Sequence[int] | None = None,
    ) -> None:
        """Writes each matcher's temperature, -1 where it has none."""
        places = range(len(matchers)) if indices is None else indices
        for m, place in zip(matchers, places, strict=True):
            temperature = m.temperature
            temperatures[place] = -1 if temperature is None else temperature

    @staticmethod
    def batch_accept_token(
        matchers: Sequence[GrammarMatcher], tokens: Sequence[int], debug_print: bool = False
    ) -> list[bool]:
        """Accepts a token by each matcher."""
        return [m.accept_token(token) for m, token in zip(matchers, tokens, strict=True)]

    @staticmethod
    def batch_accept_string(
        matchers: Sequence[GrammarMatcher], strings: Sequence[str | bytes], debug_print: bool = False
    ) -> list[bool]:
        """Accepts text by each matcher."""
        return [m.accept_string(text) for m, text in zip(matchers, strings, strict=True)]

    @staticmethod
    def batch_rollback(matchers: Sequence[GrammarMatcher], num_tokens: int | Sequence[int] = 1) -> None:
        """Takes back steps of each matcher."""
        counts = [num_tokens] * len(matchers) if isinstance(num_tokens, int) else num_tokens
        for m, count in zip(matchers, counts, strict=True):
            m.rollback(count)
