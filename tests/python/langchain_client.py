"""The package `langchain-openai` with structured output. Argument: the server's base URL. Its key is
"secret"."""

import sys
import typing

import langchain_openai
import openai
import pydantic
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool


class Car(pydantic.BaseModel):
    """A car."""

    brand: str = pydantic.Field(max_length=20)
    doors: typing.Literal[2, 4]


model = openai.OpenAI(base_url=sys.argv[1], api_key="secret").models.list().data[0].id
chat = langchain_openai.ChatOpenAI(
    base_url=sys.argv[1], api_key="secret", model=model, max_retries=0, max_tokens=200
)
assert chat.invoke("What is Formwork?").content
assert "".join(piece.content for piece in chat.stream("What is Formwork?"))
for method in ("json_schema", "function_calling"):
    car = chat.with_structured_output(Car, method=method).invoke("Describe a car.")
    assert isinstance(car, Car), (method, car)
    *_, car = chat.with_structured_output(Car, method=method).stream("Describe a car.")
    assert isinstance(car, Car), (method, car)


# Tools: bound, called, answered.
@tool
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"Sunny in {city}."


question = "What is the weather in Lisbon?"
for choice in ("auto", "any", "get_weather"):
    bound = chat.bind_tools([get_weather], tool_choice=choice)
    (call,) = bound.bind(temperature=0, parallel_tool_calls=False).invoke(question).tool_calls
    assert call["name"] == "get_weather" and list(call["args"]) == ["city"], call
refused = chat.bind_tools([get_weather], tool_choice="none").bind(temperature=0).invoke(question)
assert not refused.tool_calls and "tool_call" not in refused.content, refused
bound = chat.bind_tools([get_weather]).bind(temperature=0)
called = bound.invoke(question)
streamed = None
for piece in bound.stream(question):
    streamed = piece if streamed is None else streamed + piece
assert [c["args"] for c in streamed.tool_calls] == [c["args"] for c in called.tool_calls], streamed
answers = [get_weather.invoke(call) for call in called.tool_calls]
assert bound.invoke([HumanMessage(question), called, *answers]).content

# The same by the Responses API.
responses = langchain_openai.ChatOpenAI(
    base_url=sys.argv[1],
    api_key="secret",
    model=model,
    max_retries=0,
    max_tokens=200,
    use_responses_api=True,
)
car = responses.with_structured_output(Car).invoke("Describe a car.")
assert isinstance(car, Car), car
(call,) = responses.bind_tools([get_weather]).bind(temperature=0).invoke(question).tool_calls
assert call["name"] == "get_weather", call
