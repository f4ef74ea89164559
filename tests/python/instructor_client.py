"""The package `instructor` in the modes that constrain. Argument: the server's base URL. Its key is
"secret"."""

import sys
import typing

import instructor
import openai
import pydantic


class Car(pydantic.BaseModel):
    brand: str = pydantic.Field(max_length=20)
    doors: typing.Literal[2, 4]


openai_client = openai.OpenAI(base_url=sys.argv[1], api_key="secret", max_retries=0)
model = openai_client.models.list().data[0].id
asked = {
    "model": model,
    "messages": [{"role": "user", "content": "Describe a car."}],
    "max_retries": 0,
    "max_tokens": 200,
}
for mode in (
    instructor.Mode.JSON_SCHEMA,
    instructor.Mode.TOOLS,
    instructor.Mode.TOOLS_STRICT,
    instructor.Mode.RESPONSES_TOOLS,
):
    client = instructor.from_openai(openai_client, mode=mode)
    car = client.chat.completions.create(**asked, response_model=Car)
    assert isinstance(car, Car), (mode, car)

# Streams of what has come so far.
for mode in (instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS):
    client = instructor.from_openai(openai_client, mode=mode)
    *_, car = client.chat.completions.create_partial(**asked, response_model=Car)
    assert Car.model_validate(car.model_dump()), (mode, car)


# Calls where the model wants them, as many as it wants.
class get_weather(pydantic.BaseModel):
    """Get the weather of a city."""

    city: str


client = instructor.from_openai(openai_client, mode=instructor.Mode.PARALLEL_TOOLS)
asked["messages"] = [{"role": "user", "content": "What is the weather in Lisbon?"}]
calls = client.chat.completions.create(
    **asked, temperature=0, response_model=typing.Iterable[get_weather]
)
assert [call.city for call in calls] == ["Lisbon"]
