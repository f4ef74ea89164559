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
from tasks.portraits import portrait
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


STATUSES = "shipped pending cancelled delivered paid open closed processing returned confirmed overdue delayed".split()

# Parts of which training's own prompts are put together.
TAKE = ["Extract", "Get", "Pull out", "Find", "Give me", "Return", "Take", "Collect", "I need", "Write down", "Fill in", "Please extract", "Can you extract", "Pick out", "Read off", "Show me", "Output", "List", "Identify", "Retrieve", "Please return", "I want"]
THE_FIELDS = ["{k}", "{k}", "{k}", "the {k}", "the fields {k}", "the following fields: {k}", "these fields: {k}", "the values of {k}", "the keys {k}", "the attributes {k}"]
FROM_TEXT = ["from this text", "from the following text", "from the text below", "from this sentence", "from the sentence", "from the text", "from this message", "from the paragraph", "from this note", "from it", "out of this text", "from this description", "given in the text", "from the following sentence", "from this email"]
AS_JSON = ["as JSON", "as a JSON object", "in JSON", "in JSON format", "as json", "and answer with JSON", "and write them as JSON", "into a JSON object", "and return JSON", "as one JSON object", "and reply with JSON only", "in the form of a JSON object", "and give me only the JSON"]
LISTS = ["Fields: {k}", "Keys: {k}", "fields: {k}", "JSON with {k}.", "JSON object with the keys {k}.", "Return JSON with {k}.", "Answer with a JSON object that has {k}.", "I need {k} as JSON.", "Give me JSON with the fields {k}.", "Wanted: {k} (JSON)", "Make a JSON object with {k}.",
         "Create a JSON with {k}.", "Convert this to JSON with {k}.", "Turn it into JSON with the keys {k}.", "Turn this into a JSON object with the fields {k}.", "What are the {k}? Answer in JSON.", "Use this format: {shape}", "Answer in the form {shape}", "Fill in: {shape}", "Output format: {shape}", "JSON: {k}",
         "Generate a JSON object with the fields {k}.", "Represent this as JSON with {k}.", "Summarize as JSON: {k}"]
WITH_SCHEMA = ["Schema: {schema}", "JSON schema: {schema}", "JSON Schema:\n{schema}", "Use this schema: {schema}", "The schema is {schema}", "Follow this schema:\n{schema}", "Answer with JSON that matches this schema: {schema}", "Extract data according to this JSON Schema: {schema}", "Schema:\n{schema}",
               "Return an object that fits this schema: {schema}", "Fill this schema: {schema}", "The answer must match {schema}", "Output JSON for the schema {schema}", "Extract JSON matching the schema.\n{schema}", "Use the schema below.\n{schema}", "Parse it into this schema: {schema}", "Generate JSON that conforms to this schema: {schema}",
               "```json\n{schema}\n```", "Respond with JSON only. Schema: {schema}"]
THE_TEXT = ["{t}", "{t}", "Text: {t}", "Text:\n{t}", '"{t}"', "Sentence: {t}", "Input: {t}", "Message: {t}", "Here is the text: {t}", "'{t}'", "Document:\n{t}", "<text>{t}</text>", "Note: {t}", "text: {t}", "Description: {t}"]


def key_list(source: Source, keys: list) -> str:
    """The wanted keys, as people list them."""
    roll = source.random.random()
    if roll < 0.45:
        return listing(keys)
    if roll < 0.7:
        return ", ".join(keys)
    quote = source.choice(("'{}'", '"{}"', "`{}`"))
    quoted = [quote.format(key) for key in keys]
    if roll < 0.85:
        return source.choice((listing, ", ".join))(quoted)
    if roll < 0.92:
        return "\n" + "\n".join(f"- {key}" for key in keys) + "\n"
    return "(" + ", ".join(keys) + ")" if roll < 0.96 else ", ".join(keys[:-1]) + (", and " if len(keys) > 2 else " and " if len(keys) == 2 else "") + keys[-1]


def composed_key_prompt(source: Source, types: dict, text: str) -> str:
    keys = key_list(source, list(types))
    if source.chance(0.12):
        keys = ", ".join(f"{key} ({kind.get('type')})" for key, kind in types.items())
    shown = source.choice(THE_TEXT).format(t=text)
    if source.chance(0.55):
        parts = [source.choice(TAKE), source.choice(THE_FIELDS).format(k=keys)]
        tail = [source.choice(FROM_TEXT)] * source.chance(0.75) + [source.choice(AS_JSON)]
        if source.chance(0.3):
            tail.reverse()
        order = " ".join(parts + tail).replace("\n ", "\n")
    else:
        shape = "{" + ", ".join(f'"{key}": ' + source.choice(('"..."', "...", f'"{kind.get("type")}"', "")) for key, kind in types.items()) + "}"
        order = source.choice(LISTS).format(k=keys, shape=shape)
    if source.chance(0.6):
        return order.rstrip(".") + source.choice((": ", ":\n", ".\n", ".\n\n", ":\n\n", ". ")) + shown
    return shown + source.choice(("\n", "\n\n", " ")) + order + source.choice((".", "", ""))


def composed_schema_prompt(source: Source, schema: str, text: str) -> str:
    shown, wanted = source.choice(THE_TEXT).format(t=text), source.choice(WITH_SCHEMA).replace("{schema}", schema)
    lead = ""
    if source.chance(0.5):
        lead = f"{source.choice(TAKE)} {source.choice(('the data', 'the information', 'the fields', 'the facts', 'an object', 'the details', 'all values'))} {source.choice(FROM_TEXT)} {source.choice(AS_JSON)}" + source.choice((".\n", ":\n", ". "))
    return lead + source.choice(("\n", "\n\n")).join((shown, wanted) if source.chance(0.5) else (wanted, shown))


def schema_text(source: Source, types: dict) -> str:
    """A JSON schema as people write it: bare or with titles and descriptions, in a line or indented."""
    if source.chance(0.12):
        types = {key: kind | {"description": f"{source.choice(('The', 'the', 'A'))} {key.replace('_', ' ')}"} for key, kind in types.items()}
    schema = {"type": "object", "properties": types}
    if source.chance(0.08):
        schema = {"title": source.choice(("Person", "Record", "Item", "Order", "Data", "Result")), **schema}
    if source.chance(0.65):
        schema["required"] = list(types)
    if source.chance(0.2):
        schema["additionalProperties"] = False
    if source.chance(0.06):
        schema = types
    if source.chance(0.1):
        return json.dumps(schema, indent=2, ensure_ascii=False)
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":")) if source.chance(0.12) else dumps(schema)


def portrait_facts(source: Source) -> tuple[str, dict, dict]:
    """A text of `portraits.py`, and two to five of its facts (seldom one)."""
    text, facts = portrait(source)
    count = min(len(facts), source.choice((1, 2, 2, 3, 3, 3, 4, 4, 5)))
    chosen = source.sample(facts, count)
    if source.chance(0.5):
        chosen = [fact for fact in facts if fact in chosen]
    types, values = {}, {}
    for keys, kind, value in chosen:
        key = source.choice(keys)
        if key not in types:
            types[key] = {"type": source.choice(("number", "integer")) if kind == "integer" else "number" if kind == "number" else kind}
            if kind == "integer" and source.chance(0.8):
                types[key] = {"type": "integer"}
            if kind == "strings":
                types[key] = {"type": "array", "items": {"type": "string"}}
            if key in ("status", "state", "order_status") and source.chance(0.4):
                others = source.sample([status for status in STATUSES if status != value], source.integer(1, 4)) + [value]
                types[key] = {"type": "string", "enum": source.sample(others, len(others))}
            values[key] = value
    return text, types, values


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
    if not source.held_out_templates and source.chance(0.6):
        text, types, values = portrait_facts(source)
        text = with_articles(text)
    else:
        text, types, values = loose_facts(source) if source.chance(0.2) else spoken_facts(source)
    if source.chance(0.45):
        if source.held_out_templates or source.chance(0.2):
            prompt = source.template(KEY_PROMPTS).format(keys=listing(list(types)), text=text)
        else:
            prompt = composed_key_prompt(source, types, text)
    elif source.held_out_templates or source.chance(0.3):
        prompt = source.template(PROMPTS).format(schema=schema_text(source, types), text=text)
    else:
        prompt = composed_schema_prompt(source, schema_text(source, types), text)
    return Sample("extraction", ask(prompt), dumps(values), facts={"thought": "I take each field from the text."})


def judge(sample: Sample, text: str) -> bool:
    return same_object(text, json.loads(sample.answer))
