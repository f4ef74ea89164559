"""Copying: repeat a text, look up a key, write a record as JSON.

The easiest examples of the skill that all others rest on. They teach attention to find a token's
earlier place and go on from there, on text that nothing but the prompt could tell.
"""
import invented
from sample import Sample, ask
from source import Source, Templates
from tasks.json_text import dumps
from words.people import FIRST_NAMES, JOBS, LAST_NAMES
from words.places import CITIES
from words.things import COMPANIES, FOODS, PRODUCTS

REPEAT = Templates(
    train=["Repeat: {text}", "Say this again: {text}", "Copy this text: {text}", "Write exactly this: {text}", "Echo: {text}"],
    held_out=["Repeat this text: {text}", "Copy: {text}"],
)
LOOKUP = Templates(
    train=["{pairs}\nWhat is {key}?", "{pairs}\nGive me the value of {key}.", "Find {key} in this list.\n{pairs}",
           "{pairs}\n{key}?", "Which value belongs to {key}?\n{pairs}"],
    held_out=["{pairs}\nWhich value has {key}?", "Look up {key}.\n{pairs}"],
)
RECORD = Templates(
    train=["Write this as JSON:\n{pairs}", "As JSON, please:\n{pairs}", "{pairs}\nTurn this into a JSON object.",
           "Make a JSON object of this record.\n{pairs}"],
    held_out=["Turn this record into JSON:\n{pairs}", "{pairs}\nWrite that as a JSON object."],
)


def atom(source: Source) -> str:
    """A value of any kind."""
    kind = source.integer(0, 12)
    makers = (invented.word, invented.name, invented.letters, invented.code, invented.identifier, invented.digits,
              invented.full_name, invented.letters)
    if kind < len(makers):
        return source.invent(makers[kind])
    lists = (FIRST_NAMES, LAST_NAMES + COMPANIES, CITIES, FOODS + PRODUCTS, JOBS)
    return source.value(lists[kind - len(makers)])


def pairs_text(source: Source, pairs: list) -> str:
    joiner, separator = source.choice([(": ", "\n"), (" = ", "\n"), (" is ", ", "), (": ", ", "), ("=", "; "), (" -> ", "\n")])
    return separator.join(f"{key}{joiner}{value}" for key, value in pairs)


def unique_pairs(source: Source, low: int, high: int) -> list:
    pairs = {}
    for _ in range(source.integer(low, high)):
        pairs[source.invent(invented.identifier) if source.chance(0.7) else atom(source)] = atom(source)
    return list(pairs.items())


def make(source: Source) -> Sample:
    kind = source.integer(0, 3)
    if kind <= 1:
        text = " ".join(atom(source) for _ in range(source.integer(1, 10)))
        return Sample("copying", ask(source.template(REPEAT).format(text=text)), text)
    if kind == 2:
        pairs = unique_pairs(source, 2, 8)
        key, value = source.choice(pairs)
        prompt = source.template(LOOKUP).format(pairs=pairs_text(source, pairs), key=key)
        return Sample("copying", ask(prompt), value)
    pairs = unique_pairs(source, 1, 6)
    prompt = source.template(RECORD).format(pairs=pairs_text(source, pairs))
    return Sample("copying", ask(prompt), dumps(dict(pairs)))


def judge(sample: Sample, text: str) -> bool:
    return text == sample.answer
