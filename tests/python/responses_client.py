"""Uses /v1/responses and calls as users of the openai package do. Argument: the base URL."""

import json
import sys
import typing

import openai
import pydantic

client = openai.OpenAI(base_url=sys.argv[1], api_key="secret", max_retries=0)
model = client.models.list().data[0].id
question = "What is Formwork?"

# A whole answer, and the same as a stream.
whole = client.responses.create(model=model, input=question, temperature=0, max_output_tokens=80)
assert whole.status == "completed" and whole.output_text, whole
assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens, whole
assert whole.usage.output_tokens_details.reasoning_tokens == 0, whole
types, text, last = [], "", None
for i, event in enumerate(
    client.responses.create(
        model=model, input=question, temperature=0, max_output_tokens=80, stream=True
    )
):
    assert event.sequence_number == i, event
    types.append(event.type)
    if event.type == "response.output_text.delta":
        text += event.delta
    last = event
assert text == whole.output_text, text
assert last.type == "response.completed" and last.response.output_text == text, last
assert types[:4] == [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
], types
assert types[-4:] == [
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
], types

# A limit is told.
cut = client.responses.create(model=model, input=question, temperature=0, max_output_tokens=2)
assert cut.status == "incomplete", cut
assert cut.incomplete_details.reason == "max_output_tokens", cut
assert cut.output[-1].status == "incomplete", cut

# Conversations, with instructions and the answer's own items.
chat = [{"role": "user", "content": question}]
chat += [item.model_dump(exclude_none=True) for item in whole.output]
chat.append({"role": "user", "content": [{"type": "input_text", "text": "And what is it not?"}]})
answer = client.responses.create(
    model=model, instructions="Be brief.", input=chat, max_output_tokens=10, metadata={"a": "b"}
)
assert answer.metadata == {"a": "b"} and answer.instructions == "Be brief.", answer


# Formats.
class Car(pydantic.BaseModel):
    brand: str
    doors: typing.Literal[2, 4]


parsed = client.responses.parse(model=model, input="A car, please.", text_format=Car)
assert isinstance(parsed.output_parsed, Car), parsed
with client.responses.stream(model=model, input="A car, please.", text_format=Car) as stream:
    for _ in stream:
        pass
    assert isinstance(stream.get_final_response().output_parsed, Car)
anything = client.responses.create(
    model=model, input="JSON, please.", text={"format": {"type": "json_object"}}
)
assert isinstance(json.loads(anything.output_text), dict), anything

# Calls: the model's choice, and a forced one.
weather = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather of a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
asked = "What is the weather in Lisbon?"
for choice in ("auto", "required", {"type": "function", "name": "get_weather"}):
    request = {"model": model, "input": asked, "tools": [weather], "temperature": 0}
    answer = client.responses.create(**request, tool_choice=choice)
    (call,) = answer.output
    assert (call.type, call.name) == ("function_call", "get_weather"), answer
    assert list(json.loads(call.arguments)) == ["city"], call
    arguments, done = "", None
    for event in client.responses.create(**request, tool_choice=choice, stream=True):
        if event.type == "response.function_call_arguments.delta":
            arguments += event.delta
        elif event.type == "response.function_call_arguments.done":
            done = event.arguments
    assert arguments == done == call.arguments, (arguments, done)
with client.responses.stream(**request) as stream:
    for event in stream:
        pass
    assert stream.get_final_response().output[0].arguments == call.arguments
result = {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."}
answer = client.responses.create(
    model=model,
    input=[{"role": "user", "content": asked}, call.model_dump(exclude_none=True), result],
    tools=[weather],
    max_output_tokens=20,
)
assert answer.status in ("completed", "incomplete"), answer

# Calls in chat completions, where the model chooses.
tool = {"type": "function", "function": {k: weather[k] for k in ("name", "parameters", "strict")}}
request = {"model": model, "messages": [{"role": "user", "content": asked}], "tools": [tool]}
answer = client.chat.completions.create(**request, temperature=0)
(call,) = answer.choices[0].message.tool_calls
assert answer.choices[0].finish_reason == "tool_calls", answer
assert json.loads(call.function.arguments) == {"city": "Lisbon"}, call
with client.chat.completions.stream(**request, temperature=0) as stream:
    for event in stream:
        pass
    streamed = stream.get_final_completion().choices[0]
assert streamed.finish_reason == "tool_calls", streamed
assert streamed.message.tool_calls[0].function.arguments == call.function.arguments, streamed
history = request["messages"] + [
    answer.choices[0].message.model_dump(exclude_none=True),
    {"role": "tool", "tool_call_id": call.id, "content": "Sunny."},
]
after = client.chat.completions.create(
    model=model, messages=history, tools=[tool], max_tokens=20
)
assert after.choices[0].finish_reason, after

# What needs a stored conversation, or tools of the server's own, is refused by name.
for name, value in [
    ("previous_response_id", "resp_1"),
    ("background", True),
    ("truncation", "auto"),
    ("tools", [{"type": "file_search", "vector_store_ids": ["vs_1"]}]),
    ("input", [{"type": "item_reference", "id": "msg_1"}]),
]:
    try:
        client.responses.create(**{"model": model, "input": "Hi", name: value})
    except openai.BadRequestError as error:
        assert error.param.split("[")[0] == name, error
    else:
        raise AssertionError(f"{name} must be refused")
