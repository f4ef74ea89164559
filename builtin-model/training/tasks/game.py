"""Game character: a record in one of many layouts becomes an object with fixed keys."""
import json

import invented
from sample import Sample, ask
from source import Source, Templates
from tasks.english import capitalized, with_articles
from tasks.json_text import dumps, same_object
from words.games import ARMOR, ROLES, WEAPONS
from words.people import FIRST_NAMES

KEYS = ("name", "age", "armor", "weapon", "strength")

PROMPTS = Templates(
    train=[
        "Write this game character as JSON with name, age, armor, weapon and strength.\n{record}",
        "Game character:\n{record}\nAs JSON:",
        "{record}\nGenerate the character's JSON with name, age, armor, weapon, strength.",
        "Turn the record of this game character into JSON.\n{record}",
        "Give me the JSON object for this character: {record}",
        "Character sheet: {record}\nReturn it as JSON with the keys name, age, armor, weapon and strength.",
        "Make a JSON object (name, age, armor, weapon, strength) of this character.\n{record}",
        "Convert this record to JSON (name, age, armor, weapon, strength): {record}",
        "Write the JSON object of this hero.\n{record}",
        "Here is a record of a hero: {record}\nAnswer with a JSON object.",
        "{record}\nPut this game character into JSON.",
        "Record: {record}\nJSON:",
        "Read this game character and answer as JSON with name, age, armor, weapon and strength.\n{record}",
    ],
    held_out=[
        "Convert this game character to JSON with name, age, armor, weapon and strength.\n{record}",
        "{record}\nWrite the JSON object of this game character.",
        "Record of a game character: {record}\nAnswer as JSON.",
    ],
)
PROSE = Templates(
    train=[
        "{name} is {age} years old, wears {armor}, fights with a {weapon} and has strength {strength}.",
        "{name}, a {role}, wears {armor} and carries a {weapon}. Age {age}, strength {strength}.",
        "The {role} {name} (age {age}) has strength {strength}, a {weapon} and {armor}.",
        "With a strength of {strength}, {name} swings the {weapon}. Armor: {armor}. Age: {age}.",
        "{name} has a {weapon}, {armor}, strength {strength} and is {age} years old.",
        "At {age}, the {role} {name} wears {armor}, uses a {weapon}, and has a strength of {strength}.",
        "Strength {strength}, age {age}: {name} with {weapon} and {armor}.",
        "{armor} protects {name}, whose weapon is the {weapon}. {name} is {age} and has strength {strength}.",
        "{name} is a {role}. Age: {age}, strength: {strength}, armor: {armor}, weapon: {weapon}.",
        "{name} ({role}): {age} years old, {armor}, {weapon}, strength {strength}.",
        "The {role} {name} is {age} years old and carries a {weapon}. {name} wears {armor} and has a strength of {strength}.",
        "{name} the {role} has seen {age} years. Strength {strength}, weapon {weapon}, armor {armor}.",
        "A {role} named {name}, {age} years old, with {armor}, a {weapon} and a strength of {strength}.",
    ],
    held_out=[
        "{name} is a {role} of {age} years with strength {strength}, armor {armor} and a {weapon}.",
        "The {role} {name} wears {armor}, fights with a {weapon}, is {age} years old and has a strength of {strength}.",
        "{name}: {age} years, {weapon}, {armor}, strength {strength}.",
    ],
)


def record(source: Source, character: dict) -> str:
    """The character as prose, or as lines, pairs or a table row in any order."""
    if source.chance(0.4):
        return with_articles(capitalized(source.template(PROSE).format(role=source.choice(ROLES), **character)))
    keys = source.sample(KEYS, len(KEYS))
    label = source.choice([str, str.capitalize, str.upper])
    joiner, separator = source.choice([(": ", "\n"), (": ", ", "), (" = ", "\n"), ("=", "; "), (" - ", "\n"), (": ", " | ")])
    if source.chance(0.15):
        return " | ".join(map(label, keys)) + "\n" + " | ".join(str(character[key]) for key in keys)
    return separator.join(f"{label(key)}{joiner}{character[key]}" for key in keys)


def gear(source: Source, known: list) -> str:
    """A known piece, or one with an invented name."""
    if source.chance(0.6):
        return source.value(known)
    if source.chance(0.5):
        return f"{source.invent(invented.word)} {source.value(known)}"
    return source.invent(invented.word)


def make(source: Source) -> Sample:
    character = {
        "name": source.value(FIRST_NAMES) if source.chance(0.25) else source.invent(
            invented.full_name if source.chance(0.3) else invented.name),
        "age": source.integer(8, 400) if source.chance(0.3) else source.integer(12, 90),
        "armor": gear(source, ARMOR),
        "weapon": gear(source, WEAPONS),
        "strength": source.integer(1, 100),
    }
    prompt = source.template(PROMPTS).format(record=record(source, character))
    return Sample("game", ask(prompt), dumps(character), facts={"thought": "I copy the fields of the record."})


def judge(sample: Sample, text: str) -> bool:
    return same_object(text, json.loads(sample.answer))
