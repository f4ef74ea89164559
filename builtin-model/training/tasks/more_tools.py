"""More tools: a list with wordings, and a grammar that makes up actions with parameters and requests for them.

A parameter in square brackets in a wording's list of parts is optional: it may be left out of the request and the call.
"""
from dataclasses import dataclass
from typing import Callable

import invented
from source import Source
from tasks import portraits
from tasks.english import capitalized
from tasks.values import title
from words import more
from words.people import JOBS
from words.places import VENUES
from words.things import ANIMALS, COLORS, FOODS, PRODUCTS


@dataclass(frozen=True)
class Parameter:
    """`kind` is a JSON type or a tuple of enum members; `phrases` are how a request says it where the parameter is optional."""

    kind: object
    value: Callable
    phrases: tuple = ()
    description: str = ""


def P(kind, value=None, phrases="", description=""):
    if isinstance(kind, tuple):
        value = lambda source: source.choice(kind)
    return Parameter(kind, value, tuple(part.strip() for part in phrases.split(";") if part.strip()), description)


def number(low, high):
    return lambda source: source.integer(low, high)


def short_text(source: Source) -> str:
    """A few words, as in a note or a message."""
    kind = source.integer(0, 4)
    if kind == 0:
        return source.choice(("buy", "order", "call about", "bring", "return", "pick up", "don't forget", "sell", "check", "clean")) + " " + source.choice(("the ", "", "some ")) + source.choice(FOODS + PRODUCTS)
    if kind == 1:
        return source.choice(("call", "meet", "thank", "write to", "visit", "pay", "invite", "ask")) + " " + portraits.first_name(source)
    if kind == 2:
        return source.choice(("I will be late", "see you soon", "the meeting is cancelled", "happy birthday", "on my way", "please call me back", "dinner is ready", "I am at the station", "good luck", "the report is done", "where are you", "thank you for the gift", "water the plants", "take out the trash", "renew the passport", "pay the rent", "back up the server"))
    if kind == 3:
        return f"{source.invent(invented.word)} {source.invent(invented.word)}"
    return title(source)


def song(source):
    return title(source)


CITY = P("string", portraits.city)
DAY = P("string", portraits.date)
TIME = P("string", portraits.clock_time)
PERSON = P("string", portraits.person)
TEXT = P("string", short_text)
WORD = P("string", lambda s: s.value(FOODS + PRODUCTS) if s.chance(0.6) else s.invent(invented.word))
CODE = P("string", lambda s: s.invent(invented.code))
EMAIL = P("string", lambda s: s.invent(invented.email))
UNITS = ("celsius", "fahrenheit")
CURRENCY = ("EUR", "USD", "GBP", "JPY", "CHF", "CAD")

# name: (description, required parameters, optional parameters, requests)
TOOLS = {
    "get_current_weather": ("Get the current weather in a location", {"location": CITY}, {"unit": P(UNITS, phrases="in {v}; use {v}; in degrees {v}")}, ["What's the weather like in {location}?", "How's the weather in {location} right now?", "Is it cold in {location}?", "Do I need an umbrella in {location}?", "Current weather {location}", "How warm is it in {location}?", "Tell me what the weather in {location} is like.", "Will I need a coat in {location} today?", "Check the weather in {location}."]),
    "create_event": ("Create a calendar event", {"title": P("string", title), "date": DAY}, {"time": P("string", portraits.clock_time, "at {v}"), "location": P("string", portraits.city, "in {v}")}, ["Create an event called {title} on {date}", "Put {title} in my calendar for {date}", "Add {title} to the calendar on {date}", "Schedule {title} for {date}", "I have {title} on {date}, please note it", "New event: {title}, {date}", "Plan {title} on {date}", "Block {date} for {title}"]),
    "schedule_meeting": ("Schedule a meeting with somebody", {"person": PERSON, "date": DAY, "time": TIME}, {"duration_minutes": P("integer", number(10, 180), "for {v} minutes; it takes {v} minutes")}, ["Schedule a meeting with {person} on {date} at {time}", "Set up a meeting with {person} for {date}, {time}", "I want to meet {person} on {date} at {time}", "Arrange a call with {person} on {date} at {time}", "Meeting with {person}: {date}, {time}", "Book a meeting with {person} on {date} at {time}", "On {date} at {time} I would like to meet {person}"]),
    "set_reminder": ("Set a reminder", {"text": TEXT, "time": TIME}, {}, ["Remind me at {time} to {text}", "Set a reminder for {time}: {text}", "At {time}, remind me: {text}", "Reminder at {time}: {text}", "I need a reminder at {time}: {text}", "Please remind me of this at {time}: {text}"]),
    "send_message": ("Send a text message to a contact", {"recipient": PERSON, "message": TEXT}, {}, ["Send {recipient} the message: {message}", "Text {recipient}: {message}", 'Tell {recipient} "{message}"', "Write to {recipient}: {message}", "Message {recipient} saying {message}", 'Send a message to {recipient}: "{message}"', "Let {recipient} know: {message}", 'Send "{message}" to {recipient}']),
    "play_song": ("Play music", {"title": P("string", song)}, {"artist": P("string", portraits.person, "by {v}; from {v}")}, ["Play {title}", "Put on {title}", "I want to listen to {title}", "Can you play {title}", "Start the song {title}", "Let me hear {title}", "Play me {title}"]),
    "order_pizza": ("Order a pizza", {"size": P(("small", "medium", "large")), "topping": P("string", lambda s: s.value(FOODS))}, {"quantity": P("integer", number(2, 9), "{v} of them; quantity {v}")}, ["Order a {size} pizza with {topping}", "I'd like a {size} pizza with {topping}", "One {size} pizza, {topping} on top", "Get me a {size} {topping} pizza", "I'm hungry, order a {size} {topping} pizza", "A {size} pizza with {topping}, please"]),
    "book_hotel": ("Book a hotel room", {"city": CITY, "nights": P("integer", number(1, 21))}, {"guests": P("integer", number(1, 6), "for {v} people; for {v} guests; we are {v}"), "check_in": P("string", portraits.date, "from {v}; check in on {v}; starting {v}")}, ["Book a hotel in {city} for {nights} nights", "I need a room in {city}, {nights} nights", "Find me a hotel in {city} for {nights} nights", "We stay {nights} nights in {city}, book a hotel", "Reserve a hotel room in {city} for {nights} nights", "Hotel in {city}, {nights} nights", "Please book {nights} nights in {city}"]),
    "book_flight": ("Book a flight", {"origin": CITY, "destination": CITY, "date": DAY}, {"passengers": P("integer", number(1, 8), "for {v} passengers; {v} tickets; for {v} people"), "cabin": P(("economy", "business", "first"), phrases="in {v} class; {v} class")}, ["Book a flight from {origin} to {destination} on {date}", "I need to fly from {origin} to {destination} on {date}", "Get me a flight to {destination} from {origin} on {date}", "Fly me from {origin} to {destination}, {date}", "I want to go from {origin} to {destination} by plane on {date}", "A flight {origin} - {destination} on {date}", "On {date} I have to fly from {origin} to {destination}"]),
    "search_web": ("Search the web", {"query": P("string", lambda s: s.choice(("best ", "cheap ", "history of ", "how to repair a ", "news about ", "recipes with ", "")) + WORD.value(s))}, {"max_results": P("integer", number(2, 50), "show {v} results; at most {v} results; {v} results")}, ["Search the web for {query}", "Google {query}", "Look up {query}", "Find information on {query}", "Search for {query} online", "I want to read about {query}", "What does the internet say about {query}?", "Search: {query}"]),
    "get_time": ("Get the current time in a city", {"city": CITY}, {}, ["What time is it in {city}?", "Current time in {city}?", "Tell me the time in {city}", "How late is it in {city}?", "What's the time in {city} now?", "Time in {city}, please"]),
    "calculate": ("Calculate a result of two numbers", {"a": P("integer", number(0, 999)), "b": P("integer", number(1, 999)), "operation": P(("add", "subtract", "multiply", "divide"))}, {}, ["{operation} {a} and {b}", "Please {operation} these numbers: {a}, {b}", "Use the calculator to {operation} {a} and {b}", "Operation {operation}, a is {a}, b is {b}"]),
    "multiply": ("Multiply two numbers", {"a": P("integer", number(0, 999)), "b": P("integer", number(1, 999))}, {}, ["Multiply {a} by {b}", "What is {a} times {b}?", "{a} * {b}", "Compute {a} times {b}", "How much is {a} x {b}?", "What do you get for {a} multiplied by {b}?", "Calculate {a} * {b}"]),
    "get_route": ("Find a route", {"start": CITY, "end": CITY}, {"mode": P(("car", "train", "bike", "walking"), phrases="by {v}; mode {v}")}, ["How do I get from {start} to {end}?", "Route from {start} to {end}", "Show me the way from {start} to {end}", "Directions from {start} to {end}", "I want to go from {start} to {end}", "Navigate from {start} to {end}", "Find the best way to {end} from {start}"]),
    "set_temperature": ("Set the thermostat of a room", {"room": P("string", lambda s: s.choice(("kitchen", "bedroom", "bathroom", "living room", "office", "hall", "nursery", "cellar", "garage", "study"))), "degrees": P("integer", number(14, 28))}, {}, ["Set the {room} to {degrees} degrees", "Make it {degrees} degrees in the {room}", "Heat the {room} to {degrees}", "I want {degrees} degrees in the {room}", "Turn the heating in the {room} to {degrees}", "{degrees} degrees in the {room}, please", "The {room} should be at {degrees} degrees"]),
    "create_task": ("Add a task to the to-do list", {"title": TEXT}, {"priority": P(("low", "medium", "high"), phrases="with {v} priority; priority {v}; it has {v} priority"), "due_date": P("string", portraits.date, "due {v}; until {v}; by {v}")}, ["Add a task: {title}", "Create a task: {title}", "New task: {title}", "Put this on my to-do list: {title}", 'Add "{title}" to my tasks', "I have to {title}, make a task"]),
    "add_to_cart": ("Add a product to the shopping cart", {"product": WORD, "quantity": P("integer", number(1, 40))}, {}, ["Add {quantity} {product} to my cart", "Put {quantity} of {product} in the cart", "I'll take {quantity} {product}", "Cart: {quantity} x {product}", "I want to buy {quantity} {product}", "Please add {product} to the cart, {quantity} times", "{quantity} times {product}, add it to the basket"]),
    "transfer_money": ("Transfer money to somebody", {"recipient": PERSON, "amount": P("number", portraits.price)}, {"currency": P(CURRENCY, phrases="in {v}; currency {v}")}, ["Transfer {amount} to {recipient}", "Send {recipient} {amount}", "Pay {amount} to {recipient}", "I owe {recipient} {amount}, please send it", "Please transfer {amount} to {recipient}", "Wire {amount} to {recipient}"]),
    "get_exchange_rate": ("Get an exchange rate", {"base": P(CURRENCY), "target": P(CURRENCY)}, {}, ["What is the exchange rate from {base} to {target}?", "{base} to {target} rate", "How many {target} do I get for one {base}?", "Exchange rate {base}/{target}", "Current rate of {base} in {target}?"]),
    "track_package": ("Track a package", {"tracking_number": CODE}, {}, ["Where is my package {tracking_number}?", "Track {tracking_number}", "Track my parcel {tracking_number}", "Has {tracking_number} arrived?", "What's the status of the package {tracking_number}?", "Find parcel {tracking_number}", "My tracking number is {tracking_number}, where is it?"]),
    "get_order_status": ("Look up the status of an order", {"order_id": CODE}, {}, ["What is the status of order {order_id}?", "Where is order {order_id}?", "Check order {order_id}", "Has my order {order_id} been shipped?", "Status of {order_id}?", "I'm waiting for order {order_id}, what's going on?"]),
    "cancel_order": ("Cancel an order", {"order_id": CODE}, {"reason": P("string", lambda s: s.choice(("too expensive", "wrong size", "too late", "ordered twice", "changed my mind", "damaged", "wrong color")), "because: {v}; reason: {v}")}, ["Cancel order {order_id}", "I want to cancel my order {order_id}", "Please cancel {order_id}", "Don't send order {order_id}, cancel it", "Stop the order {order_id}"]),
    "find_recipe": ("Find a recipe", {"ingredient": P("string", lambda s: s.value(FOODS))}, {"max_minutes": P("integer", number(10, 120), "in at most {v} minutes; ready in {v} minutes; under {v} minutes"), "vegetarian": P("boolean", lambda s: True, "vegetarian; it must be vegetarian")}, ["Find a recipe with {ingredient}", "What can I cook with {ingredient}?", "I have {ingredient}, what can I cook?", "Recipe with {ingredient}, please", "Suggest a dish with {ingredient}", "Look for a {ingredient} recipe"]),
    "find_restaurant": ("Find a restaurant", {"city": CITY, "cuisine": P("string", lambda s: s.choice("Italian French Indian Thai Chinese Greek Mexican Japanese Turkish Spanish Korean Vietnamese Lebanese Ethiopian".split()))}, {"max_price": P("integer", number(10, 90), "for at most {v} euros; under {v}; max {v}")}, ["Find a {cuisine} restaurant in {city}", "Where can I eat {cuisine} food in {city}?", "I want {cuisine} food in {city}", "{cuisine} restaurants in {city}", "Is there a good {cuisine} place in {city}?", "We are in {city} and want to eat {cuisine}", "Recommend a {cuisine} restaurant in {city}"]),
    "create_note": ("Save a note", {"content": TEXT}, {}, ["Take a note: {content}", "Note: {content}", "Write this down: {content}", "Save the note: {content}", 'Make a note that says "{content}"', "Please note: {content}", "Remember this: {content}"]),
    "get_news": ("Get the latest news on a topic", {"topic": P("string", lambda s: s.value(more.SUBJECTS + more.PASTIMES) if s.chance(0.7) else s.invent(invented.name))}, {"count": P("integer", number(2, 20), "{v} articles; give me {v}; {v} headlines")}, ["What's the latest news about {topic}?", "News on {topic}", "Give me news about {topic}", "Any news about {topic}?", "What is new in {topic}?", "Show headlines about {topic}", "I want to read the news on {topic}"]),
    "define_word": ("Look up the meaning of a word", {"word": WORD}, {}, ["What does {word} mean?", "Define {word}", "Meaning of {word}?", "What is the definition of {word}?", "Look up {word} in the dictionary", "Explain the word {word}", "I don't know the word {word}"]),
    "translate_text": ("Translate text into another language", {"text": TEXT, "target_language": P("string", lambda s: s.value(more.LANGUAGES))}, {}, ['Translate "{text}" into {target_language}', "Translate to {target_language}: {text}", 'How do you say "{text}" in {target_language}?', 'What is "{text}" in {target_language}?', "In {target_language}, please: {text}", 'Say "{text}" in {target_language}']),
    "open_app": ("Open an app", {"app": P("string", lambda s: s.invent(invented.name))}, {}, ["Open {app}", "Start {app}", "Launch {app}", "Please open the app {app}", "I want to use {app}", "Run the app {app}"]),
    "set_volume": ("Set the volume of a device", {"level": P("integer", number(0, 100))}, {"device": P("string", lambda s: s.choice(("speaker", "tv", "radio", "phone", "laptop", "headphones")), "on the {v}; of the {v}")}, ["Set the volume to {level}", "Volume {level}", "Turn the volume to {level}", "Make it {level} percent loud", "Change the volume to {level}", "Put the sound at {level}"]),
    "lock_door": ("Lock or unlock a door", {"door": P("string", lambda s: s.choice(("front door", "back door", "garage", "cellar door", "garden gate", "balcony door"))), "action": P(("lock", "unlock"))}, {}, ["{action} the {door}", "Please {action} the {door}", "Can you {action} the {door}?", "I want you to {action} the {door}", "{action} {door} now"]),
    "turn_on_device": ("Switch on a device", {"device": P("string", lambda s: s.choice(("lamp", "fan", "heater", "coffee machine", "radio", "television", "air conditioner", "oven", "sprinkler", "dishwasher")))}, {"room": P("string", lambda s: s.choice(("kitchen", "bedroom", "garden", "living room", "office")), "in the {v}")}, ["Turn on the {device}", "Switch on the {device}", "Start the {device}", "Please turn the {device} on", "Power on the {device}"]),
    "get_user": ("Look up a user by id", {"user_id": P("integer", number(1, 99999))}, {}, ["Get user {user_id}", "Who is user {user_id}?", "Show me the user with the id {user_id}", "Look up user number {user_id}", "Find the user {user_id}", "Details of user {user_id}"]),
    "add_employee": ("Add an employee to the database", {"name": PERSON, "job": P("string", lambda s: s.value(JOBS + more.JOBS))}, {"salary": P("integer", number(1000, 90000), "with a salary of {v}; salary {v}; earning {v}"), "department": P("string", lambda s: s.value(more.DEPARTMENTS), "in {v}; department {v}")}, ["Add {name} as a {job}", "We hired {name} as a {job}", "New employee: {name}, {job}", "Enter {name}, a {job}", "Put {name} in the database, job {job}", "Please add the employee {name}, who is a {job}"]),
    "rate_movie": ("Rate a movie", {"title": P("string", title), "stars": P("integer", number(1, 10))}, {}, ["Give {title} {stars} stars", "Rate {title} with {stars} stars", "I'd give {title} {stars} stars", "{title} gets {stars} stars from me", "My rating for {title} is {stars}", "{stars} stars for {title}"]),
    "get_distance": ("Distance between two places", {"from_city": CITY, "to_city": CITY}, {"unit": P(("km", "miles"), phrases="in {v}")}, ["How far is it from {from_city} to {to_city}?", "Distance between {from_city} and {to_city}", "What is the distance from {from_city} to {to_city}?", "How far apart are {from_city} and {to_city}?"]),
    "water_plants": ("Water the plants", {"zone": P("integer", number(1, 12)), "minutes": P("integer", number(1, 60))}, {}, ["Water zone {zone} for {minutes} minutes", "Please water zone {zone}, {minutes} minutes", "{minutes} minutes of water for zone {zone}", "Give zone {zone} water for {minutes} minutes"]),
    "feed_pet": ("Feed a pet", {"animal": P("string", lambda s: s.value(ANIMALS)), "grams": P("integer", number(5, 900))}, {}, ["Feed the {animal} {grams} grams", "Give the {animal} {grams} grams of food", "The {animal} gets {grams} grams", "{grams} grams for the {animal}"]),
    "convert_units": ("Convert a value between units", {"value": P("number", portraits.price), "from_unit": P(("km", "miles", "meters", "feet", "kg", "pounds", "celsius", "fahrenheit", "liters", "gallons")), "to_unit": P(("km", "miles", "meters", "feet", "kg", "pounds", "celsius", "fahrenheit", "liters", "gallons"))}, {}, ["Convert {value} {from_unit} to {to_unit}", "How many {to_unit} are {value} {from_unit}?", "What is {value} {from_unit} in {to_unit}?", "{value} {from_unit} in {to_unit}", "Change {value} {from_unit} into {to_unit}"]),
    "calculate_tip": ("Calculate the tip for a bill", {"bill": P("number", portraits.price), "percent": P("integer", number(5, 30))}, {}, ["What is a {percent} percent tip on {bill}?", "Tip of {percent} percent for a bill of {bill}", "The bill is {bill}, how much is a {percent}% tip?", "Calculate {percent}% tip on {bill}", "My bill was {bill} and I want to tip {percent} percent"]),
    "roll_dice": ("Roll dice", {"count": P("integer", number(1, 12)), "sides": P("integer", lambda s: s.choice((4, 6, 8, 10, 12, 20, 100)))}, {}, ["Roll {count} dice with {sides} sides", "Roll {count}d{sides}", "Throw {count} {sides}-sided dice", "I roll {count} dice, each has {sides} sides"]),
    "create_invoice": ("Create an invoice", {"customer": P("string", portraits.company), "amount": P("number", portraits.price)}, {"due_date": P("string", portraits.date, "due {v}; due on {v}; payable by {v}")}, ["Create an invoice for {customer} over {amount}", "Bill {customer} {amount}", "Send {customer} an invoice of {amount}", "Invoice {customer} for {amount}", "New invoice: {customer}, {amount}"]),
    "reserve_seats": ("Reserve seats for a show", {"show": P("string", title), "seats": P("integer", number(1, 12)), "date": DAY}, {}, ["Reserve {seats} seats for {show} on {date}", "I want {seats} tickets for {show} on {date}", "{seats} seats, {show}, {date}", "We'd like to see {show} on {date}, {seats} seats please", "Book {seats} tickets to {show} on {date}"]),
    "read_file": ("Read a file", {"path": P("string", lambda s: f"{s.invent(invented.word)}/{s.invent(invented.word)}.{s.choice(('txt', 'csv', 'json', 'md', 'py'))}")}, {}, ["Read {path}", "Show me the file {path}", "What is in {path}?", "Open the file {path}", "Print the contents of {path}", "Let me see {path}"]),
    "find_doctor": ("Find a doctor", {"specialty": P("string", lambda s: s.choice("dentist cardiologist dermatologist pediatrician neurologist optician surgeon radiologist psychiatrist".split())), "city": CITY}, {}, ["Find a {specialty} in {city}", "I need a {specialty} in {city}", "Is there a {specialty} in {city}?", "Looking for a {specialty} near {city}", "Which {specialty} is in {city}?"]),
    "is_holiday": ("Check whether a date is a public holiday", {"date": DAY, "country": P("string", portraits.country)}, {}, ["Is {date} a holiday in {country}?", "Do people in {country} work on {date}?", "Public holiday in {country} on {date}?", "Check if {date} is a holiday in {country}"]),
    "log_workout": ("Log a workout", {"activity": P("string", lambda s: s.value(more.PASTIMES)), "minutes": P("integer", number(5, 240))}, {"calories": P("integer", number(50, 1500), "I burned {v} calories; {v} calories")}, ["I did {minutes} minutes of {activity}", "Log {minutes} minutes of {activity}", "Add a workout: {activity}, {minutes} minutes", "Today: {activity} for {minutes} minutes", "{activity}, {minutes} minutes, log it"]),
}

# Parameters of made-up actions: the names they may have, kind, value, and phrases that state them behind the request.
POOL = [
    (("date", "day", "on_date", "start_date"), P("string", portraits.date, "on {v}; for {v}; {v}")), (("time", "start_time", "hour", "at"), P("string", portraits.clock_time, "at {v}; starting at {v}")), (("city", "location", "place"), P("string", portraits.city, "in {v}; located in {v}")),
    (("name", "title", "label"), P("string", lambda s: s.invent(invented.name) if s.chance(0.5) else title(s), "called {v}; named {v}; with the name {v}; name it {v}")), (("count", "quantity", "number", "amount"), P("integer", number(1, 500), "{v} times; quantity {v}; {v} of them; count {v}")),
    (("person", "user", "assignee", "owner", "contact"), P("string", portraits.person, "for {v}; assigned to {v}; owned by {v}; on behalf of {v}")), (("priority", "level", "urgency"), P(("low", "normal", "high", "urgent"), phrases="with {v} priority; priority {v}; level {v}")), (("color", "colour"), P("string", lambda s: s.value(COLORS), "in {v}; color {v}; make it {v}")),
    (("price", "max_price", "budget", "cost"), P("number", portraits.price, "for {v} euros; at a price of {v}; budget {v}; costing {v}")), (("duration", "minutes", "duration_minutes"), P("integer", number(1, 300), "for {v} minutes; lasting {v} minutes; {v} minutes long")), (("email", "to", "recipient"), P("string", lambda s: s.invent(invented.email), "to {v}; send it to {v}; with the email {v}")),
    (("code", "id", "reference", "key"), P("string", lambda s: s.invent(invented.code), "with the code {v}; reference {v}; id {v}; number {v}")), (("size",), P(("small", "medium", "large"), phrases="in size {v}; size {v}; {v} size")), (("format", "type", "file_type"), P(("pdf", "csv", "json", "xml", "html"), phrases="as {v}; in {v} format; as a {v} file")),
    (("language", "lang"), P("string", lambda s: s.value(more.LANGUAGES), "in {v}; language {v}")), (("notify", "send_notification"), P("boolean", lambda s: s.chance(0.5), "")), (("phone", "phone_number"), P("string", portraits.phone, "phone {v}; with the number {v}")), (("company", "customer", "client"), P("string", portraits.company, "for {v}; customer {v}")),
    (("weight", "temperature", "distance", "speed"), P("number", portraits.price, "with {k} {v}; {k} {v}; at a {k} of {v}")), (("department", "team"), P("string", lambda s: s.value(more.DEPARTMENTS), "in the {v} department; for {v}; team {v}")), (("page", "limit", "max_results"), P("integer", number(1, 100), "{k} {v}; with {k} {v}")),
]
ACTIONS = "create add book order reserve cancel delete update find search get list show schedule start stop send register check print export import open close buy rent move archive rename publish assign approve".split()
NOUNS = "ticket report invoice appointment room car bike table task project contact account product recipe lesson course document photo video playlist album device sensor printer server job backup ticket parcel shipment flight train seat locker meeting poll survey badge ledger contract quote visit garden tool machine order club game match".split()
LEADS = ["", "", "", "", "Please ", "Can you ", "Could you ", "I want to ", "I'd like to ", "I need to ", "Would you ", "Help me ", "Now "]


def as_json_schema(parameter: Parameter, source: Source, key: str, described: bool) -> dict:
    kind = parameter.kind
    out = {"type": "string", "enum": list(kind)} if isinstance(kind, tuple) else {"type": kind}
    if described:
        out["description"] = parameter.description or f"{source.choice(('The', 'the', 'Name of the', 'Value of the'))} {key.replace('_', ' ')}"
    return out


def signature(source: Source, name: str, description: str, required: dict, optional: dict) -> dict:
    described = source.chance(0.2)
    everything = {**required, **optional}
    properties = {key: as_json_schema(parameter, source, key, described) for key, parameter in everything.items()}
    parameters = {"type": "object", "properties": properties}
    if required or source.chance(0.5):
        parameters["required"] = list(required)
    if source.chance(0.06):
        parameters["additionalProperties"] = False
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def listed_tool(source: Source, name: str) -> dict:
    description, required, optional, _ = TOOLS[name]
    return signature(source, name, description, required, optional)


def listed_request(source: Source, name: str) -> tuple[dict, str]:
    """Arguments for a tool of the list and a request for it. The last wording of a tool is the evaluation's."""
    _, required, optional, wordings = TOOLS[name]
    arguments = {key: parameter.value(source) for key, parameter in required.items()}
    wording = wordings[-1] if source.held_out_templates else source.choice(wordings[:-1])
    request = wording.format(**arguments)
    extras = []
    for key, parameter in optional.items():
        if source.chance(0.4):
            arguments[key] = parameter.value(source)
            extras.append(source.choice(parameter.phrases).format(v=arguments[key]))
    ending = request[-1] if request[-1] in "?.!" else ""
    body = request[:-1] if ending else request
    for extra in extras:
        body += ("" if extra[0] == "," else source.choice((" ", ", "))) + extra
    return arguments, (source.choice(LEADS[:6]) + lowered(body) if source.chance(0.15) and not body.startswith(("What", "How", "I ", "I'", "Is", "Do ", "Will")) else body) + (ending or source.choice((".", ".", "", "!")))


def lowered(text: str) -> str:
    return text


def made_tool(source: Source) -> tuple[dict, dict, str]:
    """An action put together: its signature, arguments and a request."""
    verb, noun = source.choice(ACTIONS), source.choice(NOUNS) if source.chance(0.75) else source.invent(invented.word)
    name = source.choice((f"{verb}_{noun}", f"{verb}_{noun}", f"{verb}{noun.capitalize()}", f"{noun}_{verb}", f"{verb}-{noun}"))
    required, optional, arguments, phrases = {}, {}, {}, []
    for keys, parameter in source.sample(POOL, source.choice((1, 2, 2, 3, 3, 4))):
        key = source.choice(keys)
        if not parameter.phrases:
            optional[key] = parameter
            continue
        if source.chance(0.3):
            optional[key] = parameter
            if source.chance(0.5):
                continue
        else:
            required[key] = parameter
        arguments[key] = parameter.value(source)
        phrases.append(source.choice(parameter.phrases).format(v=arguments[key], k=key.replace("_", " ")))
    if not arguments:
        key, parameter = "id", P("string", lambda s: s.invent(invented.code))
        required[key], arguments[key] = parameter, parameter.value(source)
        phrases.append(f"with the id {arguments[key]}")
    lead = source.choice(LEADS)
    joined = phrases[0] + "".join(source.choice((" ", ", ", " ")) + phrase for phrase in phrases[1:])
    if len(phrases) > 1 and source.chance(0.2):
        joined = ", ".join(phrases[:-1]) + " and " + phrases[-1]
    order = {**required, **optional}
    arguments = {key: arguments[key] for key in order if key in arguments}
    request = f"{lead}{verb} {source.choice(('a', 'the', 'a new', 'my', 'this', 'a', 'the'))} {noun} {joined}"
    ending = "?" if lead in ("Can you ", "Could you ", "Would you ") else source.choice((".", ".", "", "!"))
    description = source.choice((f"{verb.capitalize()} a {noun}", f"{verb.capitalize()} the {noun}", f"Use this to {verb} a {noun}.", f"{verb.capitalize()}s a {noun}"))
    return signature(source, name, description, required, optional), arguments, capitalized(request) + ending
