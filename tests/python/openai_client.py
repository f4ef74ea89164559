"""Uses a server as users of the OpenAI API do. Argument: its base URL. Its key is "secret"."""

import asyncio
import json
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

# The same call in pieces.
streamed = ""
for chunk in client.chat.completions.create(
    model=model,
    messages=messages,
    tools=[tool],
    tool_choice="required",
    max_tokens=200,
    stream=True,
):
    for call in chunk.choices[0].delta.tool_calls or ():
        if call.function.name:
            assert call.function.name == "paint", call
        if call.index == 0:
            streamed += call.function.arguments or ""
Car.model_validate_json(streamed)

# A pydantic model as the shape of a stream.
with client.chat.completions.stream(
    model=model, messages=messages, response_format=Car, max_tokens=200
) as stream:
    for _ in stream:
        pass
    assert isinstance(stream.get_final_completion().choices[0].message.parsed, Car)

# JSON of any shape.
chat = client.chat.completions.create(
    model=model, messages=messages, response_format={"type": "json_object"}, max_tokens=100
)
assert isinstance(json.loads(chat.choices[0].message.content), dict), chat

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

# A schema that can't be enforced is refused with the place.
try:
    client.chat.completions.create(
        model=model,
        messages=messages,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "a", "schema": {"properties": {"a": {"type": "strnig"}}}},
        },
    )
except openai.BadRequestError as error:
    assert "#/properties/a/type" in error.body["message"], error
else:
    raise AssertionError("the schema must be refused")

# A request that takes too long for its client.
try:
    client.with_options(timeout=0.2).chat.completions.create(
        model=model, messages=messages, max_tokens=1500, n=8, extra_body={"ignore_eos": True}
    )
except openai.APITimeoutError:
    pass
else:
    raise AssertionError("1500 tokens must take longer")


# A task that is cancelled in the middle of a stream.
async def cancelled():
    begun = asyncio.Event()

    async def read():
        async with openai.AsyncOpenAI(base_url=sys.argv[1], api_key="secret") as client:
            stream = await client.chat.completions.create(
                model=model,
                messages=messages,
                max_tokens=1500,
                stream=True,
                extra_body={"ignore_eos": True},
            )
            async for _ in stream:
                begun.set()

    task = asyncio.create_task(read())
    await begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return task.cancelled()


assert asyncio.run(cancelled())

# A stream that is closed early.
stream = client.chat.completions.create(
    model=model, messages=messages, max_tokens=200, stream=True, extra_body={"ignore_eos": True}
)
next(iter(stream))
stream.close()
assert client.chat.completions.create(model=model, messages=messages, max_tokens=1).choices
