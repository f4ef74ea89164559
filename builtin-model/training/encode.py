"""From a sample to token ids, by the chat template that ships with the model."""
import json
import pathlib
import re

from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from sample import Sample

TEMPLATE_PATH = pathlib.Path(__file__).parent / "chat_template.jinja"


def environment():
    """Jinja as `transformers` sets it up."""
    jinja = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    jinja.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return jinja


TEMPLATE = environment().from_string(TEMPLATE_PATH.read_text())


def prompt_text(sample: Sample) -> str:
    return TEMPLATE.render(messages=sample.messages, tools=sample.tools, add_generation_prompt=True,
                           enable_thinking=sample.thought is not None)


class Encoder:
    """Turns samples into ids. Holds the tokenizer and the ids of the turn markers."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.end_of_turn = tokenizer.token_to_id("<|im_end|>")
        self.end_of_text = tokenizer.token_to_id("<|endoftext|>")
        self.lowered_pieces = {}

    def ids(self, text: str) -> list:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def prompt(self, sample: Sample) -> list:
        return self.ids(prompt_text(sample))

    def completion(self, sample: Sample) -> list:
        """The assistant's tokens, end of turn included."""
        return self.spelled(sample.completion(), sample.lowered) + [self.end_of_turn]

    def spelled(self, text: str, lowered: list) -> list:
        """The ids of a text in which the names in `lowered` occur in lower case.

        Such a name keeps the cuts between tokens that it has in the prompt: `Vel|kan` becomes `vel|kan`
        although the tokenizer alone might write `v|elkan`. The model then changes the first piece and
        copies the rest, which it learns much sooner. Decoding gives the same text either way.
        """
        if not lowered:
            return self.ids(text)
        cuts = re.split("(" + "|".join(re.escape(name.lower()) for name in sorted(lowered, key=len, reverse=True)) + ")", text)
        names = {name.lower(): name for name in lowered}
        return [i for part in cuts if part for i in (self.lowered_ids(names[part]) if part in names else self.ids(part))]

    def lowered_ids(self, name: str) -> list:
        return [i for piece in self.ids(name) for i in self.ids(self.tokenizer.decode([piece]).lower())]
