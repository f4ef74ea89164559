"""The package `langchain-openai` with structured output. Argument: the server's base URL. Its key is
"secret"."""

import sys
import typing

import langchain_openai
import openai
import pydantic


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
