"""The requests of vLLM's documentation of structured outputs, in its older and its newer spelling.

Arguments: the server's base URL, and the file with the SQL grammar. Its key is "secret"."""

import enum
import json
import re
import sys

import openai
import pydantic

client = openai.OpenAI(base_url=sys.argv[1], api_key="secret", max_retries=0)
model = client.models.list().data[0].id
grammar = open(sys.argv[2]).read()


class CarType(str, enum.Enum):
    sedan = "sedan"
    suv = "SUV"
    truck = "Truck"
    coupe = "Coupe"


class CarDescription(pydantic.BaseModel):
    brand: str
    model: str
    car_type: CarType


def ask(question, extra_body):
    completion = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": question}], extra_body=extra_body
    )
    return completion.choices[0].message.content


SENTIMENT = "Classify this sentiment: vLLM is wonderful!"
EMAIL = "Generate an email address for Alan Turing, who works in Enigma. End in .com and new line."
CAR = "Generate a JSON with the brand, model and car_type of an iconic car."
SQL = "Generate an SQL query to show the 'username' and 'email' from the 'users' table."

choices = ["positive", "negative"]
pattern = "\\w+@\\w+\\.com\\n"
schema = CarDescription.model_json_schema()
name = "[a-zA-Z_][a-zA-Z0-9_]*"
select = re.compile(f"SELECT {name}(,{name})* FROM {name}")

for spell in (
    lambda kind, value: {f"guided_{kind}": value},
    lambda kind, value: {"structured_outputs": {kind: value}},
):
    answer = ask(SENTIMENT, spell("choice", choices))
    assert answer in choices, answer
    answer = ask(EMAIL, {**spell("regex", pattern), "stop": ["\n"]})
    assert re.fullmatch(r"\w+@\w+\.com", answer), answer
    CarDescription.model_validate_json(ask(CAR, spell("json", schema)))
    answer = ask(SQL, spell("grammar", grammar))
    assert select.fullmatch(answer), answer

# Fields that go with them.
answer = ask(EMAIL, {"guided_regex": pattern, "stop": ["\n"], "guided_decoding_backend": "xgrammar"})
assert re.fullmatch(r"\w+@\w+\.com", answer), answer
# With a seed: Python writes numbers such as -0E-33 in another way, which a car may have by chance.
answer = ask(CAR, {"guided_json": schema, "guided_whitespace_pattern": "", "seed": 1})
assert answer == json.dumps(json.loads(answer), separators=(",", ":"), ensure_ascii=False), answer
