"""The package `litellm` with structured output. Argument: the server's base URL. Its key is "secret"."""

import os
import pathlib
import re
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # It would be fetched.

import litellm
import openai
import pydantic
import yaml


class Car(pydantic.BaseModel):
    """A car."""

    brand: str = pydantic.Field(max_length=20)
    doors: int


name = openai.OpenAI(base_url=sys.argv[1], api_key="secret").models.list().data[0].id


def ask(text, **more):
    return litellm.completion(
        model=f"hosted_vllm/{name}",
        api_base=sys.argv[1],
        api_key="secret",
        messages=[{"role": "user", "content": text}],
        **more,
    )


# Notes of the caller's, which have no effect, are no mistake.
answer = ask("What is Formwork?", max_tokens=20, metadata={"a": "b"}, user="ada")
assert answer.choices[0].message.content
Car.model_validate_json(ask("Describe a car.", response_format=Car).choices[0].message.content)
choice = ask("Is it good?", extra_body={"structured_outputs": {"choice": ["yes", "no"]}})
assert choice.choices[0].message.content in ("yes", "no")

# Tools, in a stream that ends with the usage.
function = {
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
    },
}
pieces = list(
    ask(
        "The weather in Lisbon?",
        tools=[{"type": "function", "function": function}],
        tool_choice="required",
        stream=True,
        stream_options={"include_usage": True},
    )
)
whole = litellm.stream_chunk_builder(pieces)
assert whole.choices[0].message.tool_calls[0].function.name == "get_weather", whole
assert whole.usage.completion_tokens > 0, whole

# The recipe for the proxy, by the router that the proxy is built on.
page = pathlib.Path(__file__).parents[2].joinpath("docs/recipes.md").read_text()
models = yaml.safe_load(re.search(r"```yaml\n(model_list:.*?)```", page, re.DOTALL)[1])["model_list"]
for model in models:
    model["litellm_params"] |= {"api_base": sys.argv[1], "api_key": "secret"}
router = litellm.Router(model_list=models)
answer = router.completion(
    model="formwork",
    messages=[{"role": "user", "content": "Describe a car."}],
    response_format=Car,
)
Car.model_validate_json(answer.choices[0].message.content)
