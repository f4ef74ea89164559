"""Extraction: a sentence or two and a JSON schema in, the object out.

The schema asks for some of the facts, in any order, under any of their names; loose facts
have invented keys.
"""
import json

import invented
from sample import Sample, ask
from source import Source, Templates
from tasks.domains import DOMAINS, Domain, Field
from tasks.english import capitalized, listing, with_articles
from tasks.json_text import dumps, same_object
from tasks.values import coin, price

PROMPTS = Templates(
    train=[
        "Extract the data as JSON.\nSchema: {schema}\nText: {text}",
        "Schema: {schema}\nText: {text}",
        "{text}\nExtract JSON that fits this schema: {schema}",
        "Fill in this JSON schema from the text.\n{schema}\n{text}",
        "Text: {text}\nSchema: {schema}\nJSON:",
        "Here is a schema:\n{schema}\nExtract the object from: {text}",
        "Return a JSON object for this schema: {schema}\n\n{text}",
        "Read the text and answer with JSON.\n{text}\n\n{schema}",
        "Get the fields of this schema out of the sentence.\nSentence: {text}\nSchema: {schema}",
        "Parse this: {text}\nInto this: {schema}",
        "Extract the information from the text as JSON.\nSchema: {schema}\nText: {text}",
        "Given this text: {text}\nFill in this JSON schema: {schema}",
        "{schema}\nExtract the object from this sentence: {text}",
        "{schema}\n{text}",
        "Given a schema and a text, write the JSON.\n{schema}\nText: {text}",
        "{text}\n{schema}",
    ],
    held_out=[
        "Extract the information as JSON that fits the schema.\nText: {text}\nSchema: {schema}",
        "Given this JSON schema: {schema}\nExtract the object from this text: {text}",
        "{schema}\nFill in the schema from this sentence: {text}",
    ],
)
KEY_PROMPTS = Templates(
    train=[
        "Extract {keys} as JSON: {text}",
        "{text}\nReturn a JSON object with the keys {keys}.",
        "Give me {keys} as JSON.\n{text}",
        "From this text take {keys} and write JSON.\n{text}",
        "Write {keys} of this text as JSON: {text}",
        "{text}\nExtract {keys} as a JSON object.",
        "{text}\n{keys} as JSON, please.",
        "Write a JSON object with {keys} from: {text}",
    ],
    held_out=["Extract a JSON object with {keys} from this text: {text}", "{text}\nWrite {keys} as JSON."],
)


def json_type(field: Field) -> dict:
    if field.kind == "enum":
        return {"type": "string", "enum": list(field.options)}
    if field.kind == "strings":
        return {"type": "array", "items": {"type": "string"}}
    return {"type": field.kind}


def loose_facts(source: Source) -> tuple[str, dict, dict]:
    """Facts under invented keys: `The brosk is 42 and the talune is Velkan.` Returns prose, types and values."""
    wordings = [("The {k} is {v}", ", the ", " and the "), ("{k} is {v}", ", ", " and "), ("{k}: {v}", ", ", ", "),
                ("{k} has the value {v}", ", ", " and "), ("{k} = {v}", "; ", "; ")]
    wording, _, _ = chosen = source.choice(wordings)
    clauses, types, values = [], {}, {}
    for _ in range(source.integer(2, 6)):
        key = source.invent(invented.identifier) if source.chance(0.6) else source.invent(invented.word)
        kind = source.choice(("string", "string", "string", "integer", "number", "boolean"))
        value = {"string": lambda: source.invent(source.choice((invented.name, invented.word, invented.code, invented.full_name))),
                 "integer": lambda: source.integer(0, 9999), "number": lambda: price(source), "boolean": lambda: coin(source)}[kind]()
        if key in values:
            continue
        clause = wording if not clauses else wording.replace("The ", "the ")
        clauses.append(clause.format(k=key, v=dumps(value) if kind == "boolean" else value))
        types[key], values[key] = {"type": kind}, value
    joiner = ", " if chosen[1] != "; " else "; "
    text = joiner.join(clauses[:-1]) + (" and " if "is" in wording else joiner) + clauses[-1] if len(clauses) > 1 else clauses[0]
    return text + ".", types, values


def strung_clauses(source: Source, domain: Domain, spoken: dict) -> tuple[str, list]:
    """Some clauses about a subject in any order, as one sentence or several; returns the fields that they name too."""
    clauses = {field: source.choice(wordings) for field, wordings in domain.clauses.items()}
    named = source.sample(clauses, source.integer(1, len(clauses)))
    texts = [clauses[field].format(**spoken) for field in named]
    subject = domain.subject.format(**spoken)
    own = [field for field in domain.fields if "{" + field + "}" in domain.subject]
    if source.chance(0.6):
        return f"{subject} {listing(texts)}.", own + named
    pronoun = source.choice(("It", "This", subject)) if subject.startswith(("The ", "Order ", "Ticket ")) else subject
    return " ".join(f"{subject if i == 0 else pronoun} {text}." for i, text in enumerate(texts)), own + named


def spoken_facts(source: Source) -> tuple[str, dict, dict]:
    """Facts of a domain in prose, and those that the schema asks for under the keys it gives them."""
    domain = DOMAINS[source.choice(sorted(DOMAINS))]
    values = {name: field.value(source) for name, field in domain.fields.items()}
    spoken = {name: field.spoken(values[name]) for name, field in domain.fields.items()}
    if not source.held_out_templates and source.chance(0.5):
        text, named = strung_clauses(source, domain, spoken)
    else:
        text, named = source.template(domain.wordings).format(**spoken), list(values)
    count = source.integer(1, len(named)) if source.chance(0.3) else source.integer(min(2, len(named)), min(4, len(named)))
    types, wanted = {}, {}
    for name in source.sample(named, count):
        field = domain.fields[name]
        key = source.choice(field.keys)
        if key not in types:
            types[key], wanted[key] = json_type(field), values[name]
    return with_articles(capitalized(text)), types, wanted


def make(source: Source) -> Sample:
    text, types, values = loose_facts(source) if source.chance(0.2) else spoken_facts(source)
    if source.chance(0.12):
        prompt = source.template(KEY_PROMPTS).format(keys=listing(list(types)), text=text)
    else:
        schema = {"type": "object", "properties": types}
        if source.chance(0.6):
            schema["required"] = list(types)
        if source.chance(0.15):
            schema["additionalProperties"] = False
        prompt = source.template(PROMPTS).format(schema=dumps(schema), text=text)
    return Sample("extraction", ask(prompt), dumps(values), facts={"thought": "I take each field from the text."})


def judge(sample: Sample, text: str) -> bool:
    return same_object(text, json.loads(sample.answer))
