"""What vLLM's example of structured outputs does: a choice, a pattern, JSON by pydantic, a grammar; only the import is
another. The references are Python's `re`, pydantic, and the texts of the grammar, written down."""

import itertools
import json
import re
from enum import Enum

import pytest
from pydantic import BaseModel

from formwork import LLM, GuidedDecodingParams, SamplingParams, ValidationError
from formwork.sampling_params import StructuredOutputsParams


class CarType(str, Enum):
    sedan = "sedan"
    suv = "SUV"
    truck = "Truck"


class Car(BaseModel):
    brand: str
    model: str
    car_type: CarType


SQL = """
root ::= "SELECT " column " from " table " where " column "= " number
column ::= "a " | "b "
table ::= "t " | "u "
number ::= "1 " | "2 "
"""
STATEMENTS = {
    f"SELECT {a}  from {t}  where {b} = {n} " for a, t, b, n in itertools.product("ab", "tu", "ab", "12")
}


def text(llm, prompt, constraint, **params):
    sampling = SamplingParams(structured_outputs=constraint, max_tokens=60, **params)
    (output,) = llm.generate(prompt, sampling_params=sampling, use_tqdm=False)
    (answer,) = output.outputs
    assert answer.structured_output_complete is True or params.get("stop")
    return answer.text


@pytest.mark.parametrize("seed", range(8))
def test_the_examples_of_vllm(llm, seed):
    mood = StructuredOutputsParams(choice=["Positive", "Negative"])
    assert text(llm, "Is this good or bad? It is wonderful!", mood, seed=seed) in ("Positive", "Negative")
    email = StructuredOutputsParams(regex=r"\w+@\w+\.com\n")
    assert re.fullmatch(r"\w+@\w+\.com", text(llm, "The address of Alan Turing:", email, seed=seed, stop=["\n"]))
    schema = StructuredOutputsParams(json=Car.model_json_schema())
    Car.model_validate_json(text(llm, "A car of the nineties as JSON:", schema, seed=seed))
    assert text(llm, "All rows of t:", StructuredOutputsParams(grammar=SQL), seed=seed) in STATEMENTS


@pytest.mark.parametrize(
    "schema", [Car, Car.model_json_schema(), json.dumps(Car.model_json_schema())], ids=["class", "dict", "text"]
)
def test_a_schema_is_a_class_a_dict_or_a_text(llm, schema):
    Car.model_validate_json(text(llm, "A car:", StructuredOutputsParams(json=schema), seed=1))


def test_the_older_names_do_the_same(llm):
    constraint = GuidedDecodingParams(choice=["a", "b"], backend="outlines")
    sampling = SamplingParams(guided_decoding=constraint)
    assert llm.generate("x", sampling, use_tqdm=False)[0].outputs[0].text in ("a", "b")


def test_options_are_those_of_the_api(llm):
    tight = StructuredOutputsParams(json=Car, disable_any_whitespace=True)
    answer = text(llm, "A car:", tight, seed=3)
    assert answer == json.dumps(json.loads(answer), separators=(",", ":"), ensure_ascii=False)
    any_object = StructuredOutputsParams(json_object=True)
    assert isinstance(json.loads(text(llm, "An object:", any_object, seed=3)), dict)


@pytest.mark.parametrize(
    "constraint, field, message",
    [
        ({"json": "{"}, "json", "column 2"),
        ({"json": {"properties": {"a": {"type": "objekt"}}}}, "json", "#/properties/a/type"),
        ({"regex": "a("}, "regex", "column 2"),
        ({"grammar": "root ::= nothing"}, "grammar", "nothing"),
        ({"choice": []}, "choice", "choice"),
    ],
)
def test_a_constraint_that_is_wrong_is_refused_by_its_field(llm, constraint, field, message):
    with pytest.raises(ValueError) as raised:
        llm.generate("x", SamplingParams(structured_outputs=StructuredOutputsParams(**constraint)), use_tqdm=False)
    assert isinstance(raised.value, ValidationError)
    assert raised.value.parameter == f"sampling_params.structured_outputs.{field}"
    assert message in str(raised.value)


def test_a_constraint_is_one_kind():
    with pytest.raises(ValueError, match="got none"):
        StructuredOutputsParams()
    with pytest.raises(ValueError, match="got json and regex"):
        StructuredOutputsParams(json={}, regex="a")
    with pytest.raises(ValueError, match="give one of them"):
        choice = StructuredOutputsParams(choice=["a"])
        SamplingParams(structured_outputs=choice, guided_decoding=choice)
    with pytest.raises(ValueError, match="sampling_params must be made of what JSON has"):
        SamplingParams(structured_outputs=StructuredOutputsParams(json={"enum": [{1, 2}]}))
