"""`generate` of transformers with the built-in model."""

import functools

import pytest
import torch
from conftest import MODEL, STOP, Place, is_valid, text_of

from formwork.grammar.hf import LogitsProcessor


@pytest.fixture(scope="module")
def model():
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()


class Nearer:
    """Prefers tokens that bring a text's end nearer, so that a small model's texts have one."""

    def __init__(self, tokens, length):
        self.tokens, self.length = tokens, length
        self.places = {}

    def __call__(self, input_ids, scores):
        for row, ids in enumerate(input_ids.tolist()):
            place = self.places.setdefault(row, Place(self.tokens))
            if len(ids) > self.length:
                place.write(ids[-1])
            scores[row] += self.bonus(place.in_string)
        return scores

    @functools.cache
    def bonus(self, in_string):
        bonus = torch.zeros(len(self.tokens))
        place = Place(self.tokens)
        place.in_string = in_string
        for rank, beginnings in enumerate(place.nearer()):
            for token, text in enumerate(self.tokens):
                if text.startswith(beginnings):
                    bonus[token] = 30.0 - 10.0 * rank
        bonus[STOP] = 60.0
        return bonus


def test_200_schemas(model, tokenizer, compiler, tokens, schemas):
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Give me an example."}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    length = prompt["input_ids"].shape[1]
    # Batches of 8, each row with a grammar of its own.
    for first in range(0, len(schemas), 8):
        batch = schemas[first : first + 8]
        grammars = [compiler.compile_json_schema(schema, strict=True) for schema in batch]
        processor = LogitsProcessor(grammars)
        written = model.generate(
            input_ids=prompt["input_ids"].repeat(len(batch), 1),
            attention_mask=prompt["attention_mask"].repeat(len(batch), 1),
            max_new_tokens=1800,
            do_sample=False,
            logits_processor=[Nearer(tokens, length), processor],
        )
        for schema, row in zip(batch, written[:, length:].tolist(), strict=True):
            assert STOP in row, (schema, tokenizer.decode(row))
            text = text_of(tokens, row[: row.index(STOP) + 1])
            assert is_valid(schema, text), (schema, text)
