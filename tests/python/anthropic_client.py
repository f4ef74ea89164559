"""Uses /v1/messages as users of the anthropic package do. Argument: the base URL of /v1."""

import json
import sys
import typing

import anthropic
import pydantic

base_url = sys.argv[1].removesuffix("/v1")
client = anthropic.Anthropic(base_url=base_url, api_key="secret", max_retries=0)
model = client.models.list().data[0].id
# The package has no argument for it any more.
greedy = {"temperature": 0}
question = [{"role": "user", "content": "What is Formwork?"}]

# A whole answer, and the same as a stream.
whole = client.messages.create(model=model, messages=question, max_tokens=80, extra_body=greedy)
assert (whole.type, whole.role, whole.stop_reason) == ("message", "assistant", "end_turn"), whole
assert whole.id.startswith("msg_") and whole._request_id, whole
(block,) = whole.content
assert block.type == "text" and block.text.startswith("Formwork is"), whole
counted = client.messages.count_tokens(model=model, messages=question)
assert counted.input_tokens == whole.usage.input_tokens, (counted, whole.usage)
with client.messages.stream(
    model=model, messages=question, max_tokens=80, extra_body=greedy
) as stream:
    text = "".join(stream.text_stream)
    final = stream.get_final_message()
assert text == block.text == final.content[0].text, text
assert (final.stop_reason, final.usage) == ("end_turn", whole.usage), final
types = [
    event.type
    for event in client.messages.create(
        model=model, messages=question, max_tokens=80, extra_body=greedy, stream=True
    )
]
assert types[:3] == ["message_start", "content_block_start", "content_block_delta"], types
assert types[-3:] == ["content_block_stop", "message_delta", "message_stop"], types

# Limits, stop sequences, a system text, a prefilled answer.
cut = client.messages.create(model=model, messages=question, max_tokens=2, extra_body=greedy)
assert cut.stop_reason == "max_tokens" and cut.usage.output_tokens == 2, cut
stopped = client.messages.create(
    model=model, messages=question, max_tokens=80, extra_body=greedy, stop_sequences=["inference"]
)
assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "inference"), stopped
briefly = client.messages.create(
    model=model,
    system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    messages=question + [{"role": "assistant", "content": "Formwork is"}],
    max_tokens=8,
    extra_body={"top_k": 5, "top_p": 0.9},
    metadata={"user_id": "me"},
)
assert briefly.content, briefly

# Neighbours of one role are one turn.
turns = [{"role": "user", "content": "What is"}, {"role": "user", "content": "Formwork?"}]
joined = [{"role": "user", "content": "What is\nFormwork?"}]
counted = [client.messages.count_tokens(model=model, messages=m) for m in (turns, joined)]
assert counted[0] == counted[1], counted

# Tools: the model's choice, forced ones, and the way back.
weather: anthropic.types.ToolParam = {
    "name": "get_weather",
    "description": "Get the weather of a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
asked = [{"role": "user", "content": "What is the weather in Lisbon?"}]
for choice in ({"type": "auto"}, {"type": "any"}, {"type": "tool", "name": "get_weather"}):
    request = {"model": model, "messages": asked, "tools": [weather], "tool_choice": choice}
    answer = client.messages.create(**request, max_tokens=200, extra_body=greedy)
    assert answer.stop_reason == "tool_use", answer
    (call,) = answer.content
    assert (call.type, call.name, list(call.input)) == ("tool_use", "get_weather", ["city"]), call
    with client.messages.stream(**request, max_tokens=200, extra_body=greedy) as stream:
        parts = [event.partial_json for event in stream if event.type == "input_json"]
        final = stream.get_final_message()
    assert json.loads("".join(parts)) == final.content[0].input == call.input, (parts, final)
    counted = client.messages.count_tokens(**request)
    assert counted.input_tokens == answer.usage.input_tokens, (counted, answer.usage)
result = {"type": "tool_result", "tool_use_id": call.id, "content": "Sunny.", "is_error": False}
answer = client.messages.create(
    model=model,
    messages=asked
    + [{"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}],
    tools=[weather],
    max_tokens=20,
)
assert answer.stop_reason in ("end_turn", "max_tokens", "tool_use"), answer


# Calls that the package runs by itself.
@anthropic.beta_tool
def get_weather(city: str) -> str:
    """Get the weather of a city

    Args:
        city: The city.
    """
    return f"Sunny in {city}."


runner = client.beta.messages.tool_runner(
    model=model, messages=asked, tools=[get_weather], max_tokens=200, max_iterations=3
)
assert [message.stop_reason for message in runner], "no answer"

# Thinking.
thinking = {"type": "enabled", "budget_tokens": 1024}
sums = [{"role": "user", "content": "2 + 3?"}]
answer = client.messages.create(
    model=model, messages=sums, max_tokens=1500, thinking=thinking, extra_body=greedy
)
assert answer.content[0].type == "thinking" and answer.content[0].signature, answer
with client.messages.stream(
    model=model, messages=sums, max_tokens=1500, thinking=thinking, extra_body=greedy
) as stream:
    final = stream.get_final_message()
assert final.content[0] == answer.content[0], (final, answer)
again = client.messages.create(
    model=model,
    messages=sums
    + [{"role": "assistant", "content": answer.content}, {"role": "user", "content": "4 + 4?"}],
    max_tokens=100,
    thinking={"type": "disabled"},
)
assert again.content[0].type == "text", again


# Structured outputs.
class Car(pydantic.BaseModel):
    brand: str
    doors: typing.Literal[2, 4]


cars = [{"role": "user", "content": "A car, please."}]
parsed = client.messages.parse(model=model, messages=cars, max_tokens=200, output_format=Car)
assert isinstance(parsed.parsed_output, Car), parsed
schema = {"type": "json_schema", "schema": Car.model_json_schema()}
answer = client.messages.create(
    model=model, messages=cars, max_tokens=200, output_config={"format": schema}
)
Car.model_validate_json(answer.content[0].text)

# Errors by class.
nobody = anthropic.Anthropic(base_url=base_url, api_key="wrong", max_retries=0)
image = {"type": "image", "source": {"type": "url", "url": "http://localhost/a.png"}}
search = {"type": "web_search_20250305", "name": "web_search"}
for kind, error_type, says, ask in [
    (anthropic.AuthenticationError, "authentication_error", "x-api-key", {"client": nobody}),
    (anthropic.NotFoundError, "not_found_error", "does not exist", {"model": "other"}),
    (anthropic.BadRequestError, "invalid_request_error", "temprature", {"extra_body": {"temprature": 1}}),
    (
        anthropic.BadRequestError,
        "invalid_request_error",
        "messages[0].content[0]",
        {"messages": [{"role": "user", "content": [image]}]},
    ),
    (anthropic.BadRequestError, "invalid_request_error", "tools[0].type", {"tools": [search]}),
]:
    asker = ask.pop("client", client)
    for stream in (False, True):
        try:
            asker.messages.create(
                **{"model": model, "messages": question, "max_tokens": 2, "stream": stream, **ask}
            )
        except kind as error:
            assert error.type == error_type and error.request_id, error.body
            assert error.body["request_id"] == error.request_id, error.body
            assert says in error.message, error.message
        else:
            raise AssertionError(f"{ask} must be refused")
