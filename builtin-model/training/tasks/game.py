"""Game character: a record in one of many layouts becomes an object with fixed keys."""
import json

import invented
from sample import Sample, ask
from source import Source, Templates
from tasks.english import capitalized, with_articles
from tasks.json_text import dumps, same_object
from words import more
from words.things import COLORS
from words.games import ARMOR, EPITHETS, PLACES, ROLES, TRAITS, WEAPONS
from words.people import FIRST_NAMES

METALS = "iron steel bronze copper silver golden mithril obsidian bone crystal wooden enchanted ancient rusty cursed holy".split()
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


# Parts of which training's own texts and prompts are put together: each aspect as a clause behind the name or a pronoun, as an
# aside, with its own sentence. {q} is his, her or its.
VERBS = {
    "age": "is {v} years old; is {v}; is {v} winters old; has lived {v} years; just turned {v}; is aged {v}; has seen {v} summers; is now {v}; counts {v} years; is only {v}",
    "armor": "wears {v}; is clad in {v}; is protected by {v}; trusts in {q} {v}; has {v} for armor; is dressed in {v}; put on {v}; goes into battle in {v}; wears a suit of {v}; uses {v} as armor; is covered in {v}; dons {v}; is armored in {v}",
    "weapon": "fights with a {v}; carries a {v}; wields a {v}; uses a {v}; swings a {v}; is armed with a {v}; attacks with {q} {v}; never leaves home without {q} {v}; prefers a {v}; has a {v}; holds a {v}; brandishes a {v}; relies on a {v}; has mastered the {v}; wields {q} {v}",
    "strength": "has strength {v}; has a strength of {v}; has {v} strength; has {v} points of strength; has a strength score of {v}; has strength level {v}; reaches a strength of {v}; boasts {v} strength; is known for a strength of {v}; has {v} strength points",
}
ASIDES = {
    "age": "{v} years old; {v}; aged {v}; age {v}; a {v}-year-old {role}; {v} years of age", "armor": "clad in {v}; wearing {v}; in {v}; dressed in {v}; with {v} for armor; protected by {v}",
    "weapon": "armed with a {v}; wielding a {v}; with a {v}; {v} in hand; carrying a {v}; swinging {q} {v}", "strength": "with strength {v}; strength {v}; with a strength of {v}; with {v} strength; {v} strength",
}
ALONE = {
    "age": "{Q} age is {v}.; Age: {v}.; {P} is {v} years old.; At {v}, {p} has seen it all.; {P} is {v}.", "armor": "{Q} armor is {v}.; Armor: {v}.; {Q} armor of choice is {v}.; For armor {p} wears {v}.; {Q} armor: {v}.; {V} is what {p} wears.; As for armor, it is {v}.",
    "weapon": "{Q} weapon is a {v}.; Weapon: {v}.; {Q} weapon of choice is the {v}.; In battle {p} swings a {v}.; A {v} hangs at {q} side.; {Q} favourite weapon is the {v}.; For a weapon {p} took a {v}.; Enemies fear {q} {v}.",
    "strength": "{Q} strength is {v}.; Strength: {v}.; Strength {v}.; {Q} strength stands at {v}.; {P} has {v} strength.; With {v} strength {p} is no weakling.; On strength {p} scores {v}.; {Q} strength value is {v}.",
}
FORMS = [{key: text.split("; ") for key, text in table.items()} for table in (VERBS, ASIDES, ALONE)]
INTROS = ["{n}", "{n}", "{n}", "{n}", "{n}", "{n} the {role}", "{n}, a {trait} {role}", "The {role} {n}", "The {trait} {role} {n}", "Meet {n}", "A {role} named {n}", "{n}, a {role} from {place}", "Our hero {n}", "This is {n}", "My character is {n}", "A {trait} {role} called {n}", "{n} is a {role} who",
          "From {place} comes {n}", "My character {n}", "{n}, {role} of {place}", "The name is {n}", "I play {n}", "Character: {n}", "Beware of {n}"]
FILLERS = ["{n} comes from {place}.", "{P} is {trait}.", "Many songs are sung about {n}.", "{P} is a {role}.", "Nobody knows where {n} was born.", "{P} was born in {place}.", "{P} loves gold.", "{P} travels alone.", "{P} has a pet wolf.", "The story begins in {place}.",
           "{P} guards {place}.", "{P} lost a brother in the war.", "Everyone in {place} knows {n}.", "{P} speaks little.", "{P} once slew a dragon.", "{P} likes ale.", "Level 12.", "{P} has two friends."]
ORDERS = ["Write {what} as JSON", "Turn {what} into JSON", "Convert {what} to JSON", "Make a JSON object of {what}", "Give me {what} as JSON", "Return {what} as a JSON object", "Create a JSON object for {what}", "Generate JSON for {what}", "Describe {what} as JSON", "Put {what} into JSON", "Extract {what} as JSON",
          "Output {what} in JSON", "I need {what} in JSON format", "Generate a JSON object for {what}", "Write JSON for {what}", "Please write {what} as a JSON object", "Parse {what} into JSON", "Fill a JSON object from {what}", "Create {what} in JSON", "Can you turn {what} into JSON?", "Represent {what} in JSON"]
WHAT = ["this game character", "the game character", "this character", "the character", "this hero", "the character below", "this RPG character", "the following character", "this fantasy character", "the following game character", "this character sheet", "this player", "the character sheet", "this warrior", "this description"]
KEY_TAILS = ["", "", " with {k}", " with {k}", " with the keys {k}", " with the fields {k}", " ({k})", ". Keys: {k}", " using {k}", ". Fields: {k}", " with the attributes {k}", ", fields {k}", ". Use the keys {k}"]


def prompt_for(source: Source, text: str) -> str:
    keys = list(KEYS) if source.chance(0.9) else source.sample(KEYS, 5)
    named = source.choice((", ".join(keys[:-1]) + " and " + keys[-1], ", ".join(keys), ", ".join(keys[:-1]) + ", and " + keys[-1], ", ".join(f"'{key}'" for key in keys)))
    order = source.choice(ORDERS).format(what=source.choice(WHAT)).rstrip("?") + source.choice(KEY_TAILS).format(k=named)
    if source.chance(0.65):
        return order + source.choice((":\n", ".\n", ": ", ".\n\n", ". ", "\n")) + text
    return text + source.choice(("\n", "\n\n", " ")) + order + source.choice((".", ""))


def prose(source: Source, character: dict) -> str:
    """Sentences from the parts above, in any order."""
    verbs, asides, alone = FORMS
    name, (p, q) = character["name"], source.choice((("he", "his"), ("she", "her")))
    role, trait, place = source.choice(ROLES), source.choice(TRAITS), source.choice(PLACES)

    def say(form: str, key: str = "name") -> str:
        value = str(character[key])
        if key == "weapon" and value.endswith("s") and not value.endswith("ss") or value == "none":
            form = form.replace("a {v}", "{v}")
        return form.format(v=value, V=capitalized(value), n=name, p=p, q=q, P=p.capitalize(), Q=q.capitalize(), role=role, trait=trait, place=place)

    rest = source.sample(KEYS[1:], 4)
    if source.chance(0.12):  # bare values between commas, the name first; numbers and gear tell themselves apart
        bits = [say(source.choice(asides[key] + ([f"{{v}} {key}", f"{key} {{v}}", f"{key}: {{v}}"] if key != "age" else [])), key) for key in rest]
        return name + source.choice((", ", ": ", " - ", " (")) + ", ".join(bits)
    intro, sentences = say(source.choice(INTROS)), []
    front = ""
    if source.chance(0.15):
        key = rest.pop()
        front = capitalized(say({"age": source.choice(("at {v}, ", "at the age of {v}, ", "aged {v}, ")), "armor": source.choice(("clad in {v}, ", "in {q} {v}, ", "wearing {v}, ")),
                                 "weapon": source.choice(("with a {v} in hand, ", "armed with a {v}, ", "swinging a {v}, ")), "strength": source.choice(("with a strength of {v}, ", "with strength {v}, "))}[key], key))
        intro = name
    subject = front + intro
    beside = [rest.pop() for _ in range(source.choice((0, 0, 1, 1, 2))) if len(rest) > 1]
    if beside and not intro.endswith(" who"):
        subject += ", " + ", ".join(say(source.choice(asides[key]), key) for key in beside)
        closing = ", "
    else:
        rest += beside
        closing = " "
    behind = [rest.pop() for _ in range(min(len(rest), source.choice((1, 1, 2, 2, 3, 4))))]
    clauses = [say(source.choice(verbs[key]), key) for key in behind]
    if intro.startswith(("Meet", "This is", "From", "The name", "I play", "Character:", "My character is", "Beware")):
        sentences.append(subject + ".")
        subject, closing = source.choice((p.capitalize(), name)), " "
    joined = clauses[0] if len(clauses) == 1 else ", ".join(clauses[:-1]) + source.choice((" and ", ", and ")) + clauses[-1]
    sentences.append(subject + closing + joined + ".")
    if len(rest) >= 2 and source.chance(0.4):
        pair = [say(source.choice(verbs[key]), key) for key in rest[:2]]
        sentences.append(f"{p.capitalize()} {pair[0]} and {pair[1]}.")
        rest = rest[2:]
    for key in rest:
        sentences.append(capitalized(say(source.choice(alone[key]), key)) if source.chance(0.6) else f"{source.choice((p.capitalize(), name))} {say(source.choice(verbs[key]), key)}.")
    for _ in range(source.choice((0, 0, 0, 1, 2))):
        sentences.insert(source.integer(0, len(sentences)), say(source.choice(FILLERS)))
    return " ".join(sentences)


def unlabelled(source: Source, character: dict) -> str:
    """Values alone, in an order in which each can be told: the age has "years" or stands before the strength."""
    values = {key: str(value) for key, value in character.items()}
    plain_age = source.chance(0.4)
    if not plain_age:
        values["age"] = source.choice(("{} years", "{} years old", "age {}", "{}y", "aged {}")).format(values["age"])
        if source.chance(0.5):
            values["strength"] = source.choice(("strength {}", "{} strength", "str {}", "STR {}", "strength: {}")).format(values["strength"])
    keys = list(KEYS)
    if not plain_age:
        rest = source.sample(KEYS[1:], 4) if values["strength"] != str(character["strength"]) or source.chance(0.5) else list(KEYS[1:])
        keys = ["name"] + rest
        if source.chance(0.1):
            keys = rest + ["name"]
    if source.chance(0.15) and not plain_age:
        values["armor"], values["weapon"] = f"{values['armor']} (armor)", f"{values['weapon']} (weapon)"
    return source.choice((", ", ", ", "; ", " | ", " / ", "\n", " - ", ",")).join(values[key] for key in keys)


def record(source: Source, character: dict) -> str:
    """The character as prose, or as lines, pairs, a table row or bare values in any order."""
    if not source.held_out_templates and source.chance(0.5):
        return with_articles(capitalized(prose(source, character)))
    if source.chance(0.4):
        return with_articles(capitalized(source.template(PROSE).format(role=source.choice(ROLES), **character)))
    if source.chance(0.25):
        return unlabelled(source, character)
    keys = source.sample(KEYS, len(KEYS))
    label = source.choice([str, str.capitalize, str.upper])
    joiner, separator = source.choice([(": ", "\n"), (": ", ", "), (" = ", "\n"), ("=", "; "), (" - ", "\n"), (": ", " | "), (" ", ", "), (": ", ". "), (": ", "; "), (":", "\n")])
    if source.chance(0.15):
        return " | ".join(map(label, keys)) + "\n" + " | ".join(str(character[key]) for key in keys)
    names = {"armor": source.choice(("armor", "armor", "armour")), "strength": source.choice(("strength", "strength", "strength", "str"))}
    return separator.join(f"{label(names.get(key, key))}{joiner}{character[key]}" for key in keys)


def gear(source: Source, known: list) -> str:
    """A known piece, or one with an invented name."""
    roll = source.random.random()
    if roll < 0.68:
        return source.value(known)
    if roll < 0.78:
        return f"{source.value(COLORS + METALS)} {source.value(known)}"
    return f"{source.invent(invented.word)} {source.value(known)}" if roll < 0.9 else source.invent(invented.word)


def hero_name(source: Source) -> str:
    roll = source.random.random()
    if roll < 0.3:
        return source.value(FIRST_NAMES + more.FIRST)
    if roll < 0.45:
        return f"{source.invent(invented.name)} {source.choice(EPITHETS)}"
    if roll < 0.5:
        return f"{source.value(FIRST_NAMES + more.FIRST)} {source.choice(EPITHETS)}"
    return source.invent(invented.full_name if roll < 0.6 else invented.name)


def make(source: Source) -> Sample:
    character = {
        "name": hero_name(source),
        "age": source.integer(8, 400) if source.chance(0.3) else source.integer(12, 90),
        "armor": gear(source, ARMOR),
        "weapon": gear(source, WEAPONS),
        "strength": source.integer(1, 100),
    }
    text = record(source, character)
    if source.held_out_templates or source.chance(0.35):
        prompt = source.template(PROMPTS).format(record=text)
    else:
        prompt = prompt_for(source, text)
    return Sample("game", ask(prompt), dumps(character), facts={"thought": "I copy the fields of the record."})


def judge(sample: Sample, text: str) -> bool:
    return same_object(text, json.loads(sample.answer))
