"""Uses a server as users of the OpenAI API do. Argument: its base URL. Its key is "secret"."""

import json
import re
import sys
import typing

import openai
import pydantic

client = openai.OpenAI(base_url=sys.argv[1], api_key="secret", max_retries=0)
model = client.models.list().data[0].id
messages = [{"role": "user", "content": "What is Formwork?"}]

# A whole answer, and the same as a stream.
chat = client.chat.completions.create(model=model, messages=messages, max_tokens=16, temperature=0)
assert chat.choices[0].message.role == "assistant", chat
text = chat.choices[0].message.content
assert text and chat.usage.completion_tokens <= 16, chat
streamed, usage = "", None
for chunk in client.chat.completions.create(
    model=model,
    messages=messages,
    max_tokens=16,
    temperature=0,
    stream=True,
    stream_options={"include_usage": True},
):
    if chunk.choices:
        streamed += chunk.choices[0].delta.content or ""
    else:
        usage = chunk.usage
assert streamed == text, (streamed, text)
assert usage == chat.usage, (usage, chat.usage)

# Completions, several at once, with logprobs.
completion = client.completions.create(
    model=model, prompt=["One", "Two"], n=2, max_tokens=4, temperature=1, seed=1, logprobs=2
)
assert [choice.index for choice in completion.choices] == [0, 1, 2, 3], completion
assert all(len(c.logprobs.tokens) == len(c.logprobs.token_logprobs) for c in completion.choices)

# Logprobs of a chat answer.
chat = client.chat.completions.create(
    model=model, messages=messages, max_tokens=3, logprobs=True, top_logprobs=2
)
for position in chat.choices[0].logprobs.content:
    assert len(position.top_logprobs) == 2, position
    assert bytes(position.bytes).decode(errors="replace") == position.token, position

# vLLM's fields by extra_body.
chat = client.chat.completions.create(
    model=model,
    messages=messages,
    max_tokens=4,
    extra_body={"ignore_eos": True, "top_k": 5, "return_token_ids": True},
)
assert chat.usage.completion_tokens == 4, chat
assert len(chat.choices[0].token_ids) == 4, chat

# Constraints as vLLM's documentation spells them.
def constrained(**extra):
    return client.chat.completions.create(
        model=model, messages=messages, max_tokens=100, extra_body=extra
    ).choices[0].message.content


assert constrained(guided_choice=["positive", "negative"]) in ("positive", "negative")
email = constrained(guided_regex=r"\w+@\w+\.com\n", stop=["\n"])
assert re.fullmatch(r"\w+@\w+\.com", email), email
schema = {
    "type": "object",
    "properties": {"brand": {"type": "string"}, "car_type": {"enum": ["sedan", "SUV"]}},
    "required": ["brand", "car_type"],
}
for extra in (
    {"guided_json": schema},
    {"structured_outputs": {"json": schema}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "car", "schema": schema}}},
):
    car = json.loads(constrained(**extra))
    assert isinstance(car["brand"], str) and car["car_type"] in ("sedan", "SUV"), car


class Car(pydantic.BaseModel):
    brand: str
    doors: typing.Literal[2, 4]


car = client.chat.completions.parse(model=model, messages=messages, response_format=Car)
assert isinstance(car.choices[0].message.parsed, Car), car

# Calls.
tool = {"type": "function", "function": {"name": "paint", "parameters": Car.model_json_schema()}}
for choice in ("required", {"type": "function", "function": {"name": "paint"}}):
    answer = client.chat.completions.create(
        model=model, messages=messages, tools=[tool], tool_choice=choice, max_tokens=200
    )
    for call in answer.choices[0].message.tool_calls:
        assert call.function.name == "paint", call
        Car.model_validate_json(call.function.arguments)

# Errors arrive as the package's own.
for expected, change in [
    (openai.BadRequestError, {"temperature": 9}),
    (openai.BadRequestError, {"extra_body": {"guided_yaml": "a"}}),
    (openai.NotFoundError, {"model": "gpt-4"}),
]:
    try:
        client.chat.completions.create(**{"model": model, "messages": messages, **change})
    except expected as error:
        assert error.body["message"], error
    else:
        raise AssertionError(f"{change} must be refused")
try:
    openai.OpenAI(base_url=sys.argv[1], api_key="wrong", max_retries=0).models.list()
except openai.AuthenticationError:
    pass
else:
    raise AssertionError("a wrong key must be refused")

# A stream that is closed early.
stream = client.chat.completions.create(
    model=model, messages=messages, max_tokens=200, stream=True, extra_body={"ignore_eos": True}
)
next(iter(stream))
stream.close()
assert client.chat.completions.create(model=model, messages=messages, max_tokens=1).choices
