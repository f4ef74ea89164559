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
for mode in (instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS):
    client = instructor.from_openai(openai_client, mode=mode)
    car = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "Describe a car."}],
        response_model=Car,
        max_retries=0,
        max_tokens=200,
    )
    assert isinstance(car, Car), (mode, car)
