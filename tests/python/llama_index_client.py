"""LlamaIndex's own paths to structured output and to tools, over `llama-index-llms-openai-like`. Argument: the
server's base URL. Its key is "secret"."""

import asyncio
import sys
import typing

import openai
import pydantic
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.program import FunctionCallingProgram, LLMTextCompletionProgram
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike


class Car(pydantic.BaseModel):
    """A car."""

    brand: str = pydantic.Field(max_length=20)
    doors: typing.Literal[2, 4]


def llm(**more):
    return OpenAILike(
        model=openai.OpenAI(base_url=sys.argv[1], api_key="secret").models.list().data[0].id,
        api_base=sys.argv[1],
        api_key="secret",
        is_chat_model=True,
        is_function_calling_model=True,
        context_window=2048,
        max_tokens=200,
        max_retries=0,
        **more,
    )


# Text, whole and in pieces.
model = llm(temperature=0)
question = [ChatMessage(role="user", content="What is Formwork?")]
answer = model.chat(question).message.content
assert answer
*_, last = model.stream_chat(question)
assert last.message.content == answer, last

# Structured output: by a call, in pieces, and by `response_format`.
prompt = PromptTemplate("Describe {what}.")
car = model.structured_predict(Car, prompt, what="a car")
assert isinstance(car, Car), car
assert isinstance(model.as_structured_llm(Car).complete("Describe a car.").raw, Car)
*_, car = model.stream_structured_predict(Car, prompt, what="a car")
assert Car.model_validate(car.model_dump()), car
by_schema = llm(should_use_structured_outputs=True)
assert isinstance(by_schema.structured_predict(Car, prompt, what="a car"), Car)
program = FunctionCallingProgram.from_defaults(
    output_cls=Car, prompt_template_str="Describe {what}.", llm=model, tool_required=True
)
assert isinstance(program(what="a car"), Car)
# By text alone, under a constraint of ours.
constrained = llm(additional_kwargs={"extra_body": {"structured_outputs": {"json": Car.model_json_schema()}}})
program = LLMTextCompletionProgram.from_defaults(
    output_cls=Car, prompt_template_str="Describe {what}.", llm=constrained
)
assert isinstance(program(what="a car"), Car)


# Tools: chosen by the model, asked for, and run by an agent.
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    seen.append(city)
    return f"Sunny in {city}."


seen = []
tool = FunctionTool.from_defaults(get_weather)
for required in (False, True):
    answer = model.chat_with_tools([tool], "What is the weather in Lisbon?", tool_required=required)
    (call,) = model.get_tool_calls_from_response(answer)
    assert (call.tool_name, call.tool_kwargs) == ("get_weather", {"city": "Lisbon"}), call
agent = FunctionAgent(tools=[tool], llm=model, streaming=True)


async def ask():
    return await agent.run("What is the weather in Lisbon?", max_iterations=2, early_stopping_method="generate")


assert str(asyncio.run(ask()))
assert seen and set(seen) == {"Lisbon"}, seen
