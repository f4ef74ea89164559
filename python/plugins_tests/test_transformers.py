"""`generate` of transformers with the built-in model."""

import pytest
import torch
from conftest import MODEL, STOP, is_valid, text_of

from formwork.grammar import GrammarMatcher
from formwork.grammar.hf import LogitsProcessor, apply_bitmask


@pytest.fixture(scope="module")
def model():
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()


class Ending:
    """Lets the text of each row end soon, once it has `FREE` tokens, which a model as small as this rarely does."""

    FREE = 100

    def __init__(self, grammars, length):
        self.matchers = [GrammarMatcher(grammar) for grammar in grammars]
        self.length = length

    def __call__(self, input_ids, scores):
        words = scores.shape[-1] // 32
        for row, (matcher, ids) in enumerate(zip(self.matchers, input_ids.tolist(), strict=True)):
            if matcher.is_terminated():
                continue
            written = len(ids) - self.length
            if written > 0:
                assert matcher.accept_token(ids[-1])
            if written >= self.FREE and not matcher.is_terminated():
                bitmask = torch.empty((1, words), dtype=torch.int32)
                matcher.fill_next_token_bitmask_within(bitmask, matcher.min_tokens_to_complete())
                apply_bitmask(scores[row : row + 1], bitmask)
        return scores


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
        grammars = [compiler.compile_json_schema(schema) for schema in batch]
        processor = LogitsProcessor(grammars)
        written = model.generate(
            input_ids=prompt["input_ids"].repeat(len(batch), 1),
            attention_mask=prompt["attention_mask"].repeat(len(batch), 1),
            max_new_tokens=1800,
            do_sample=False,
            logits_processor=[Ending(grammars, length), processor],
        )
        for schema, row in zip(batch, written[:, length:].tolist(), strict=True):
            assert STOP in row, (schema, tokenizer.decode(row))
            text = text_of(tokens, row[: row.index(STOP) + 1])
            assert is_valid(schema, text), (schema, text)
