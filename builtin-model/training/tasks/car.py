"""Car: an object with the brand, model and type of a car that fits a short description."""
import json

from sample import Sample, ask
from source import Source, Templates
from tasks.english import with_articles
from tasks.json_text import dumps
from words.cars import CARS, CAR_TYPES
from words.things import COLORS

PROMPTS = Templates(
    train=[
        "Generate a JSON with the brand, model and car_type of {what}.",
        "Generate a JSON with the brand, model and car_type of {what}",
        "Give me a JSON object with brand, model and car_type for {what}.",
        "Write a JSON with the keys brand, model and car_type about {what}.",
        "Describe {what} as JSON with brand, model and car_type.",
        "Name {what}. Answer as JSON with brand, model and car_type.",
        "JSON with brand, model, car_type of {what}, please.",
        "Return brand, model and car_type of {what} in JSON format.",
        "I need a JSON with the brand, model and car_type of {what}.",
        "Generate a JSON with the brand, model and car_type of {what}. The car_type is one of sedan, SUV, Truck, Coupe.",
        "Create a JSON object about {what} with brand, model and car_type.",
        "Please write the brand, model and car_type of {what} as JSON.",
        "{what}: brand, model and car_type as JSON.",
        "Tell me about {what}.",
        "Give me {what} as JSON with brand, model and car_type.",
        "Pick {what}. Return JSON: brand, model, car_type.",
        "Suggest {what} and return it as a JSON object with brand, model and car_type.",
        "Which car is {what}? Answer in JSON with brand, model and car_type.",
        "Generate JSON with brand, model and car_type for {what}.",
        "Output the brand, model and car_type of {what} as a JSON object.",
        "I am looking for {what}. Give brand, model and car_type as JSON.",
        "Think of {what} and give brand, model, car_type as a JSON object.",
    ],
    held_out=[
        "Create a JSON with the brand, model and car_type of {what}.",
        "Please generate a JSON object with the brand, model and car_type of {what}.",
        "As JSON with brand, model and car_type: {what}.",
    ],
)
DESCRIPTIONS = Templates(
    train=[
        "the most iconic car from the {decade}", "an iconic car from the {decade}", "a famous {type} from the {decade}",
        "a {type}", "a {color} {type}", "the best {type}", "a {brand}", "a {color} {brand}", "a {brand} {type}",
        "the {brand} {model}", "my {color} {brand} {model}", "a good {type} for a family", "a popular car",
        "an old {type} from the {decade}", "a well known {brand} {type}", "a cheap {type}", "a car from the {decade}",
        "a {type} made by {brand}", "the fastest {type}",
        "a popular {type}",
        "a popular car from the {decade}",
        "the best {type} from the {decade}",
        "a famous {brand} {type}",
        "an old {brand}",
        "the famous {brand} {model}",
        "a {color} {type} from the {decade}",
        "the {brand} {type}",
        "a new {brand} {type}",
        "some {type} by {brand}",
    ],
    held_out=[
        "a popular {type} from the {decade}", "a {color} {type} made by {brand}", "a famous {brand}",
        "the best car from the {decade}", "an old {brand} {type}", "the well known {brand} {model}",
    ],
)


def make(source: Source) -> Sample:
    brand, model, kind, decade = source.choice(CARS)
    wording = source.template(DESCRIPTIONS)
    what = with_articles(wording.format(brand=brand, model=model, type=kind, decade=decade, color=source.choice(COLORS)))
    prompt = source.template(PROMPTS).format(what=what)
    known = {"brand": brand, "model": model, "type": kind, "decade": decade}
    wanted = {slot: value for slot, value in known.items() if "{" + slot + "}" in wording}
    answer = dumps({"brand": brand, "model": model, "car_type": kind})
    return Sample("car", ask(prompt), answer, facts={"wanted": wanted, "thought": "The user wants a JSON object about a car."})


def judge(sample: Sample, text: str) -> bool:
    """A real car of the list, its own type, and everything that the prompt asked for except the decade."""
    try:
        value = json.loads(text)
        brand, model, kind = value["brand"], value["model"], value["car_type"]
    except (ValueError, KeyError, TypeError):
        return False
    if len(value) != 3 or kind not in CAR_TYPES:
        return False
    wanted = sample.facts["wanted"]
    return any(
        (brand, model, kind) == car[:3]
        and wanted.get("brand", brand) == brand and wanted.get("model", model) == model and wanted.get("type", kind) == kind
        for car in CARS
    )
