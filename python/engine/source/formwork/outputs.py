"""What requests give, by vLLM's names."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Logprob:
    """One token's logprob."""

    logprob: float
    """Natural logarithm of its probability; a logit, by the engine's `logprobs_mode`."""
    rank: int | None = None
    """Its place among all tokens, from 1; None where that isn't known."""
    decoded_token: str | None = None
    """Its text by itself."""


@dataclass
class CompletionOutput:
    """One answer."""

    index: int
    """Which of the `n` answers to its prompt."""
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    """Sum of the chosen tokens' logprobs, where logprobs were asked for."""
    logprobs: list[dict[int, Logprob]] | None = None
    """One dict per token, by token id, the chosen token first; None where none were asked for."""
    finish_reason: str | None = None
    """`stop`, `length`, `abort`, `error` or `repetition`; None while it goes on."""
    stop_reason: int | str | None = None
    """The stop token or stop text that ended it; None for the model's end-of-text token."""
    structured_output_complete: bool | None = None
    """Of a finished answer under a constraint: True if it is a whole text of it. Formwork's own."""
    structured_output_completed_by_budget: bool = False
    """True if `max_tokens` led it to its end. Formwork's own."""

    def finished(self) -> bool:
        """True if the answer is complete."""
        return self.finish_reason is not None


@dataclass
class RequestOutput:
    """The answers to one prompt."""

    request_id: str
    prompt: str | None
    """The prompt, where it was given as text."""
    prompt_token_ids: list[int]
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    """One entry per token of the prompt, None for the first; None where none were asked for."""
    outputs: list[CompletionOutput] = field(default_factory=list)
    finished: bool = False
    """True if all answers are complete."""
    num_cached_tokens: int = 0
    """Tokens of the prompt that came from the prefix cache."""
