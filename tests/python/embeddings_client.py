"""Asks a server for embeddings as users of the OpenAI API do. Arguments: its base URL, and what to expect."""

import json
import math
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="secret", max_retries=0)
model = client.models.list().data[0].id
with open(sys.argv[2], encoding="utf-8") as file:
    expected = json.load(file)

# The package asks for base64 by itself, and makes numbers of it.
answer = client.embeddings.create(model=model, input=expected["texts"])
assert answer.object == "list" and answer.model == model, answer
assert answer.usage.prompt_tokens == sum(map(len, expected["token_ids"])), answer.usage
for item, reference in zip(answer.data, expected["embeddings"], strict=True):
    assert all(math.isclose(a, b, abs_tol=2e-5) for a, b in zip(item.embedding, reference, strict=True))

numbers = client.embeddings.create(model=model, input=expected["token_ids"][0], encoding_format="float")
assert all(math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)
           for a, b in zip(numbers.data[0].embedding, answer.data[0].embedding, strict=True))

try:
    client.embeddings.create(model=model, input=["a", ""], dimensions=4)
except openai.BadRequestError as error:
    assert error.param == "dimensions", error
else:
    raise AssertionError("dimensions were not refused")
