"""Where every random choice comes from, and the split between training and evaluation.

A `Source` is a seeded generator that knows which side it serves. Templates are split by hand (two
lists in the task's file). Values (names, places, codes, identifiers) are split by a hash of their
text, so that the two sides never share one, whichever list or inventor it came from.
"""
import random
import zlib
from dataclasses import dataclass
from typing import Callable, Sequence

HELD_OUT_SHARE = 8  # one value in eight belongs to the evaluation


def is_held_out(value: str) -> bool:
    """Whether a value is kept for the evaluation. Letter case doesn't matter: an address repeats a name in lower case."""
    return zlib.crc32(value.lower().encode()) % HELD_OUT_SHARE == 0


@dataclass(frozen=True)
class Templates:
    """Wordings for training and wordings that only the evaluation sees."""

    train: Sequence
    held_out: Sequence


class Source:
    """Random choices for one side of the split.

    `familiar_templates` lets an evaluation use the training's wordings with its own values, to tell
    apart what a miss is due to.
    """

    def __init__(self, seed, held_out: bool = False, familiar_templates: bool = False):
        self.random = random.Random(seed)
        self.held_out = held_out
        self.held_out_templates = held_out and not familiar_templates

    def template(self, templates: Templates):
        """One wording of this side."""
        return self.random.choice(templates.held_out if self.held_out_templates else templates.train)

    def value(self, values: Sequence[str]) -> str:
        """One entry of a list, of this side; any entry where a short list has none of this side."""
        for _ in range(100):
            value = self.random.choice(values)
            if is_held_out(value) == self.held_out:
                return value
        own = [value for value in values if is_held_out(value) == self.held_out]
        return self.random.choice(own or list(values))

    def invent(self, make: Callable[[random.Random], str]) -> str:
        """The first value of this side that `make` comes up with."""
        for _ in range(10_000):
            value = make(self.random)
            if is_held_out(value) == self.held_out:
                return value
        raise ValueError(f"no value for this side of the split, last seen: {value!r}")

    # Choices that are no values (which task, how many fields) and numbers, which single digits spell.
    def choice(self, options):
        return self.random.choice(options)

    def sample(self, options, count: int) -> list:
        return self.random.sample(list(options), count)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)
