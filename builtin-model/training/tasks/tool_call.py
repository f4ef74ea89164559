"""Tool call: tools in the system turn and a request in, `<tool_call>` with a name and arguments out.

Some tools are listed here with their wordings; others are invented on the spot, so that the model reads
the signature instead of knowing it. A few requests need no tool, and some conversations go on after the
tool's result.
"""
import json
from dataclasses import dataclass

import invented
from sample import Sample, ask
from source import Source, Templates
from tasks import chat, more_tools
from tasks.english import capitalized, with_articles
from tasks.json_text import dumps, same_object
from tasks.values import city, person, price, title, word_or
from words.people import FIRST_NAMES
from words.things import COLORS, FOODS, PRODUCTS


@dataclass(frozen=True)
class Tool:
    """A function: what it does, its parameters (JSON type or enum members, and a source of values), its wordings."""

    description: str
    parameters: dict
    wordings: Templates


def integer(low: int, high: int):
    return ("integer", lambda source: source.integer(low, high))


def text(value):
    return ("string", value)


def invent(make):
    return ("string", lambda source: source.invent(make))


def one_of(*members):
    return (members, lambda source: source.choice(members))


NUMBER = ("number", price)

TOOLS = {
    "get_weather": Tool("Get the weather of a city", {"city": text(city)}, Templates(
        ["What is the weather in {city}?", "How is the weather in {city} today?", "Is it raining in {city}?",
         "Tell me the weather for {city}.", "Weather in {city}, please."],
        ["What's the weather like in {city}?", "Give me the weather of {city}."])),
    "get_forecast": Tool("Get a forecast for some days", {"city": text(city), "days": integer(1, 14)}, Templates(
        ["Forecast for {city}, {days} days.", "What will the weather be in {city} in the next {days} days?",
         "Give me a {days} day forecast of {city}."],
        ["I need the forecast of {city} for {days} days.", "Show a forecast for the next {days} days in {city}."])),
    "send_email": Tool("Send an e-mail", {"to": invent(invented.email), "subject": text(title)}, Templates(
        ["Send an email to {to} with the subject {subject}.", "Write to {to} about {subject}.",
         "Mail {to}, subject: {subject}."],
        ["Please send {to} an email with the subject {subject}.", "Email {to} about {subject}."])),
    "set_timer": Tool("Start a timer", {"minutes": integer(1, 180)}, Templates(
        ["Set a timer for {minutes} minutes.", "Start a {minutes} minute timer.", "Wake me in {minutes} minutes."],
        ["I need a timer of {minutes} minutes.", "Set the timer to {minutes} minutes."])),
    "set_alarm": Tool("Set an alarm", {"time": invent(invented.time)}, Templates(
        ["Set an alarm for {time}.", "Wake me up at {time}.", "Alarm at {time}, please."],
        ["Please set the alarm to {time}.", "I want to wake up at {time}."])),
    "convert_currency": Tool("Convert money", {"amount": NUMBER, "from": one_of("EUR", "USD", "GBP", "JPY"),
                                               "to": one_of("EUR", "USD", "GBP", "JPY")}, Templates(
        ["Convert {amount} {from} to {to}.", "How much is {amount} {from} in {to}?", "Change {amount} {from} into {to}."],
        ["What is {amount} {from} in {to}?", "Please convert {amount} {from} into {to}."])),
    "add": Tool("Add two numbers", {"a": integer(0, 9999), "b": integer(0, 9999)}, Templates(
        ["Add {a} and {b}.", "What is {a} plus {b}?", "Use the tool to add {a} to {b}."],
        ["Please add {a} and {b}.", "How much is {a} plus {b}?"])),
    "search_products": Tool("Search the shop", {"query": text(word_or(PRODUCTS)), "max_price": integer(5, 900)}, Templates(
        ["Find a {query} under {max_price} euros.", "Search for a {query} that costs at most {max_price}.",
         "I want a {query} for less than {max_price}."],
        ["Look for a {query} under {max_price}.", "Search a {query} for at most {max_price} euros."])),
    "book_table": Tool("Book a table", {"name": text(person), "people": integer(1, 12), "time": invent(invented.time)}, Templates(
        ["Book a table for {people} at {time}, name {name}.", "A table at {time} for {people} people under the name {name}.",
         "Reserve a table for {name}, {people} people, {time}."],
        ["Please book a table for {people} people at {time} under {name}.", "{name} wants a table for {people} at {time}."])),
    "play_music": Tool("Play a song", {"song": text(title)}, Templates(
        ["Play {song}.", "I want to hear {song}.", "Put on the song {song}."], ["Please play the song {song}.", "Can you play {song}?"])),
    "get_stock_price": Tool("Get the price of a share", {"symbol": invent(lambda r: invented.letters(r).upper())}, Templates(
        ["What is the stock price of {symbol}?", "How is {symbol} trading?", "Price of {symbol} shares?"],
        ["Get the stock price of {symbol}.", "What does a share of {symbol} cost?"])),
    "create_user": Tool("Create an account", {"username": invent(invented.identifier), "age": integer(10, 99)}, Templates(
        ["Create the user {username}, age {age}.", "Make an account for {username} who is {age}.",
         "New user: {username}, {age} years old."],
        ["Please create an account {username} of age {age}.", "Add the user {username}, {age} years old."])),
    "turn_light": Tool("Switch a light", {"room": text(lambda s: s.choice(("kitchen", "bedroom", "bathroom", "hall", "office", "garage", "cellar"))),
                                          "state": one_of("on", "off")}, Templates(
        ["Turn {state} the light in the {room}.", "Switch the {room} light {state}.", "{room} light {state}."],
        ["Please turn the light in the {room} {state}.", "Put the {room} light {state}."])),
    "translate": Tool("Translate a word", {"word": text(word_or(FOODS + PRODUCTS)),
                                           "language": one_of("German", "French", "Spanish", "Italian", "Dutch")}, Templates(
        ["Translate {word} into {language}.", "What is {word} in {language}?", "How do I say {word} in {language}?"],
        ["Please translate {word} to {language}.", "Say {word} in {language}."])),
    "find_flight": Tool("Find a flight", {"from": text(city), "to": text(city), "date": invent(invented.date)}, Templates(
        ["Find a flight from {from} to {to} on {date}.", "I want to fly to {to} from {from} on {date}.",
         "Flights {from} - {to}, {date}."],
        ["Search a flight from {from} to {to} for {date}.", "On {date} I fly from {from} to {to}, find a flight."])),
    "delete_file": Tool("Delete a file", {"path": invent(lambda r: f"{invented.word(r)}/{invented.word(r)}.{r.choice(('txt', 'csv', 'json', 'log'))}")},
                        Templates(["Delete {path}.", "Remove the file {path}.", "Please get rid of {path}."],
                                  ["Delete the file {path}.", "I don't need {path} any more, delete it."])),
    "set_color": Tool("Set the color of an object", {"object": text(word_or(PRODUCTS)), "color": text(word_or(COLORS))}, Templates(
        ["Paint the {object} {color}.", "Make the {object} {color}.", "Set the color of the {object} to {color}."],
        ["Please make the {object} {color}.", "The {object} should be {color}."])),
    "add_contact": Tool("Save a contact", {"name": text(person), "phone": invent(invented.phone)}, Templates(
        ["Save {name}'s number {phone}.", "Add {name} to my contacts, phone {phone}.", "New contact {name}: {phone}"],
        ["Add the contact {name} with the number {phone}.", "Save the number {phone} of {name}."])),
}

INVENTED_REQUESTS = Templates(
    train=["Call {name} with {arguments}.", "Use {name}: {arguments}.", "Please run {name} with {arguments}.", "{name} with {arguments}",
           "I want you to {verb} with {arguments}.",
        "Run {name} for {arguments}.",
        "Call the tool {name}: {arguments}.",
        "Please use the tool {name} with {arguments}.",
        "{name}, {arguments}, please."],
    held_out=["Please call {name} with {arguments}.", "Run the tool {name}: {arguments}."],
)
VERBS = "get set find make read send open start stop check count update remove load build print show move copy fetch".split()


def signature(name: str, description: str, types: dict) -> dict:
    """A tool as the OpenAI API writes it."""
    properties = {
        key: {"type": "string", "enum": list(kind)} if isinstance(kind, tuple) else {"type": kind} for key, kind in types.items()
    }
    parameters = {"type": "object", "properties": properties, "required": list(types)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def known_tool(name: str) -> dict:
    tool = TOOLS[name]
    return signature(name, tool.description, {key: kind for key, (kind, _) in tool.parameters.items()})


def invented_tool(source: Source) -> tuple[dict, dict, str]:
    """A tool nobody knows: its signature, arguments for it, and a request that states them."""
    verb, noun = source.choice(VERBS), source.invent(invented.word)
    name = f"{verb}_{noun}"
    types, arguments = {}, {}
    for _ in range(source.integer(1, 3)):
        key = source.invent(invented.identifier) if source.chance(0.5) else source.choice(
            ("name", "id", "value", "key", "size", "path", "user", "level", "count", "city", "color", "date"))
        kind = source.choice(("string", "string", "integer"))
        types[key] = kind
        arguments[key] = source.integer(0, 999) if kind == "integer" else source.invent(
            source.choice((invented.word, invented.name, invented.code, invented.full_name)))
    stated = " and ".join(source.choice(("{k} {v}", "{k} {v}", "{k} = {v}")).format(k=k, v=v) for k, v in arguments.items())
    request = source.template(INVENTED_REQUESTS).format(name=name, verb=f"{verb} {noun}", arguments=stated)
    return signature(name, f"{verb.capitalize()} the {noun}", types), arguments, request


def call_text(name: str, arguments: dict) -> str:
    return f"<tool_call>\n{dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def make(source: Source) -> Sample:
    others = source.sample(sorted(TOOLS), source.choice((0, 0, 1, 1, 2, 3)))
    if source.chance(0.03):
        others = source.sample(sorted(TOOLS), 8)
    distractors = [known_tool(other) for other in others]
    if source.chance(0.5):
        distractors = [more_tools.listed_tool(source, other) for other in source.sample(sorted(more_tools.TOOLS), source.choice((0, 1, 1, 2, 3)))]
        if source.chance(0.4):
            distractors = distractors[:2] + [more_tools.made_tool(source)[0]]
    kind = source.random.random()
    if kind < 0.15:
        tool, arguments, request = invented_tool(source)
    elif kind < 0.45 and not source.held_out_templates:
        tool, arguments, request = more_tools.made_tool(source)
    elif kind < 0.75:
        name = source.choice(sorted(more_tools.TOOLS))
        tool = more_tools.listed_tool(source, name)
        arguments, request = more_tools.listed_request(source, name)
    else:
        name = source.choice(sorted(TOOLS))
        tool = known_tool(name)
        arguments = {key: value(source) for key, (_, value) in TOOLS[name].parameters.items()}
        request = source.template(TOOLS[name].wordings).format(**arguments)
    if not source.held_out_templates and source.chance(0.4):
        tool, arguments = renamed(source, tool, arguments)
    name = tool["function"]["name"]
    tools = [other for other in distractors if other["function"]["name"] != name] + [tool]
    source.random.shuffle(tools)
    request = with_articles(request if request.startswith(name) else capitalized(request))
    if not source.held_out and source.chance(0.2):
        tools = without_descriptions(source, tools)
    if not source.held_out and source.chance(0.06):
        request = request.lower() if all(not isinstance(v, str) or v.islower() for v in arguments.values()) else request
    thought = f"I call {name}."
    if not source.held_out and source.chance(0.06):
        small_talk = chat.make(source)
        return Sample("tool_call", small_talk.messages, small_talk.answer, tools=tools, facts={"thought": "No tool is needed."})
    if not source.held_out and source.chance(0.08):
        return after_result(source, tools)
    return Sample("tool_call", ask(request), call_text(name, arguments), tools=tools, facts={"thought": thought})


# Other names that a parameter may have; training renames some, so that the model reads names instead of knowing them.
OTHER_KEYS = {
    "city": ("location", "place", "town", "city_name"), "location": ("city", "place", "area", "where"), "people": ("guests", "party_size", "persons", "number_of_people"), "time": ("at", "hour", "when", "start_time"), "date": ("day", "on", "when", "travel_date"), "title": ("name", "subject", "label", "what"),
    "song": ("title", "track", "song_name"), "query": ("q", "search", "term", "keywords"), "word": ("term", "text", "phrase"), "language": ("target_language", "lang", "to_language"), "amount": ("value", "sum", "money", "total"), "name": ("person", "full_name", "contact_name", "who"), "minutes": ("duration", "duration_minutes", "length"),
    "from": ("source", "origin", "from_city", "start"), "to": ("target", "destination", "recipient", "goal"), "origin": ("from", "departure", "start_city"), "destination": ("to", "arrival", "target_city"), "recipient": ("to", "contact", "person", "receiver"), "message": ("text", "body", "content"), "text": ("message", "note", "content"),
    "order_id": ("id", "order", "order_number", "number"), "tracking_number": ("id", "number", "code", "package_id"), "room": ("location", "area", "zone"), "device": ("name", "appliance", "target"), "quantity": ("count", "amount", "number", "pieces"), "product": ("item", "article", "name"), "path": ("file", "filename", "file_path"), "days": ("count", "number_of_days", "length"),
    "symbol": ("ticker", "stock", "share"), "a": ("x", "first", "number1"), "b": ("y", "second", "number2"), "state": ("status", "mode", "on_off"), "person": ("name", "with", "attendee"), "degrees": ("temperature", "value", "target"), "nights": ("number_of_nights", "stay", "duration"), "start": ("from", "origin", "a"), "end": ("to", "destination", "b"),
    "user_id": ("id", "user", "number"), "phone": ("number", "phone_number", "tel"), "email": ("to", "address", "mail"), "content": ("text", "note", "body"), "topic": ("subject", "query", "about"), "level": ("volume", "value", "percent"), "customer": ("client", "company", "bill_to"), "subject": ("title", "topic", "about"), "max_price": ("price_limit", "budget", "limit"),
    "username": ("user", "login", "name"), "age": ("years", "user_age"), "color": ("colour", "new_color", "paint"), "object": ("item", "thing", "target"),
}
OTHER_VERBS = {"get": ("fetch", "lookup", "check", "show", "find", "read", "query"), "set": ("change", "start", "adjust", "update"), "create": ("add", "make", "new", "insert"), "find": ("search", "get", "lookup", "locate"), "book": ("reserve", "order"), "send": ("write", "deliver", "post"), "add": ("create", "insert", "save"), "search": ("find", "query", "lookup"),
               "play": ("start", "stream"), "calculate": ("compute", "get"), "convert": ("change", "exchange"), "delete": ("remove", "erase"), "turn": ("switch", "set"), "track": ("find", "get"), "schedule": ("plan", "create"), "order": ("buy", "get"), "translate": ("convert",), "cancel": ("stop", "delete")}


def renamed(source: Source, tool: dict, arguments: dict) -> tuple[dict, dict]:
    """The same tool under another name and with other names of its parameters."""
    function = tool["function"]
    properties = function["parameters"].get("properties", {})
    keys = {}
    for key in properties:
        options = [other for other in OTHER_KEYS.get(key, ()) if other not in keys.values() and other not in properties]
        keys[key] = source.choice(options) if options and source.chance(0.6) else key
    parts = function["name"].split("_")
    if parts[0] in OTHER_VERBS and source.chance(0.6):
        parts[0] = source.choice(OTHER_VERBS[parts[0]])
    style = source.random.random()
    name = "_".join(parts)
    if style < 0.2:
        name = parts[0] + "".join(part.capitalize() for part in parts[1:])
    elif style < 0.3:
        name = "_".join(parts[1:] + parts[:1])
    elif style < 0.4:
        name += source.choice(("_tool", "_api", "_v2", "_service"))
    parameters = dict(function["parameters"], properties={keys[key]: value for key, value in properties.items()})
    if "required" in parameters:
        parameters["required"] = [keys[key] for key in parameters["required"]]
    return {"type": "function", "function": dict(function, name=name, parameters=parameters)}, {keys[key]: value for key, value in arguments.items()}


def without_descriptions(source: Source, tools: list) -> list:
    """Signatures as they also come: without a description, or without "required"."""
    out = []
    for tool in tools:
        function = dict(tool["function"])
        if source.chance(0.7):
            function.pop("description", None)
        if source.chance(0.3):
            function["parameters"] = {key: value for key, value in function["parameters"].items() if key != "required"}
        out.append({"type": "function", "function": function})
    return out


def after_result(source: Source, tools: list) -> Sample:
    """The turn after the weather tool's result: say it in a sentence."""
    place, degrees, sky = city(source), source.integer(-10, 38), source.choice(("sunny", "cloudy", "rainy", "windy", "foggy", "snowy"))
    messages = ask(source.template(TOOLS["get_weather"].wordings).format(city=place))
    call = {"type": "function", "function": {"name": "get_weather", "arguments": {"city": place}}}
    messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
    messages.append({"role": "tool", "content": dumps({"city": place, "temperature": degrees, "sky": sky})})
    tools = [tool for tool in tools if tool["function"]["name"] != "get_weather"] + [known_tool("get_weather")]
    return Sample("tool_call", messages, f"It is {sky} in {place} at {degrees} degrees.", tools=tools,
                  facts={"thought": "The tool has answered."})


def judge(sample: Sample, text: str) -> bool:
    """One call, the right function, all arguments right; where no call is due, the very sentence."""
    start, end = "<tool_call>\n", "\n</tool_call>"
    text = text.strip()
    if not sample.answer.startswith(start):
        return text == sample.answer
    if not (text.startswith(start) and text.endswith(end)):
        return False
    return same_object(text[len(start):-len(end)], json.loads(sample.answer[len(start):-len(end)]))
