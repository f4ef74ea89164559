"""The kinds of things that the extraction task's sentences speak of, and how they speak of them.

A `Domain` has fields (each with several possible key names, a JSON type and a source of values), whole
wordings, and clauses that can be strung together in any order.
"""
from dataclasses import dataclass
from typing import Callable

import invented
from source import Source, Templates
from tasks.english import listing
from tasks.values import city, coin, company, either, flag, listed, made, member, person, price, several, thing, title, whole, word_or
from words.people import FIRST_NAMES, JOBS
from words.places import COUNTRIES, VENUES
from words.things import ANIMALS, COLORS, FOODS


@dataclass(frozen=True)
class Field:
    """One fact: the keys it may have, its JSON type, its value and, where they differ, how prose says it."""

    keys: tuple
    kind: str  # string, integer, number, boolean, enum or strings
    value: Callable[[Source], object]
    spoken: Callable[[object], str] = str
    options: tuple = ()


@dataclass(frozen=True)
class Domain:
    """`clauses` say one field each, with the `subject` (which names a field or two itself) before them."""

    fields: dict
    wordings: Templates
    subject: str
    clauses: dict


STATUS = ("shipped", "pending", "cancelled", "delivered", "paid")
LEVELS = ("low", "medium", "high")
SIZES = ("small", "medium", "large")

DOMAINS = {
    "person": Domain(
        {
            "name": Field(("name", "full_name", "person", "who"), "string", person),
            "age": Field(("age", "years", "age_in_years"), "integer", whole(1, 99)),
            "city": Field(("city", "town", "place", "location", "home"), "string", city),
            "job": Field(("job", "profession", "occupation", "work"), "string", word_or(JOBS)),
        },
        Templates(
            train=[
                "{name} is {age} years old, lives in {city} and works as a {job}.",
                "{name}, a {age}-year-old {job}, comes from {city}.",
                "In {city} lives {name}. The {job} is {age}.",
                "Meet {name} ({age}), who is a {job} in {city}.",
                "My friend {name} moved to {city} at {age} to be a {job}.",
                "The {job} {name} from {city} turned {age} today.",
                "{name}, {age}, {city}, {job}",
                "At {age}, {name} still works as a {job} in {city}.",
                "I met a {job} in {city}. The name was {name}, {age} years of age.",
            ],
            held_out=[
                "{name} from {city} is a {job} and {age} years old.",
                "The {job} {name} lives in {city} and is {age}.",
                "{name} is a {age}-year-old {job} who lives in {city}.",
            ],
        ),
        "{name}",
        {
            "age": ("is {age} years old", "is {age}", "turned {age} this week", "has the age of {age}"),
            "city": ("lives in {city}", "comes from {city}", "has a flat in {city}", "was born in {city}", "moved to {city}"),
            "job": ("works as a {job}", "is a {job}", "earns a living as a {job}", "wants to be a {job}"),
        },
    ),
    "product": Domain(
        {
            "product": Field(("product", "item", "name", "article"), "string", thing),
            "color": Field(("color", "colour", "paint"), "string", word_or(COLORS)),
            "price": Field(("price", "cost", "amount", "euros"), "number", price),
            "quantity": Field(("quantity", "stock", "count", "pieces"), "integer", whole(1, 500)),
            "brand": Field(("brand", "maker", "company", "manufacturer"), "string", company),
        },
        Templates(
            train=[
                "The {color} {product} by {brand} costs {price} euros; {quantity} are left.",
                "{brand} sells a {color} {product} for {price}. There are {quantity} in stock.",
                "We have {quantity} pieces of the {product} from {brand} in {color} at {price} each.",
                "For {price} you get a {color} {product}, made by {brand}. Stock: {quantity}.",
                "Product: {product}, brand: {brand}, color: {color}, price: {price}, quantity: {quantity}.",
                "I ordered {quantity} {color} units of the {brand} {product} at {price}.",
                "The price of the {product} in {color} is {price}. {brand} has {quantity} of them.",
                "{quantity} x {product} ({color}), {brand}, {price}",
            ],
            held_out=[
                "{brand} offers {quantity} pieces of a {color} {product} at a price of {price}.",
                "The {brand} {product} in {color} costs {price}, and {quantity} are in stock.",
                "A {color} {product} from {brand}: {price} euros, {quantity} left.",
            ],
        ),
        "The {product}",
        {
            "color": ("comes in {color}", "is {color}", "is painted {color}", "has a {color} finish"),
            "price": ("costs {price}", "sells for {price} euros", "has a price of {price}"),
            "quantity": ("is in stock {quantity} times", "has a stock of {quantity}", "was ordered {quantity} times"),
            "brand": ("is made by {brand}", "comes from {brand}", "is a {brand} article", "is sold by {brand}"),
        },
    ),
    "order": Domain(
        {
            "order": Field(("order_id", "order", "id", "number", "reference"), "string", made(invented.code)),
            "customer": Field(("customer", "client", "buyer", "name"), "string", person),
            "status": Field(("status", "state", "order_status"), "enum", member(STATUS), options=STATUS),
            "total": Field(("total", "sum", "amount", "price"), "number", price),
            "date": Field(("date", "day", "ordered_on"), "string", made(invented.date)),
        },
        Templates(
            train=[
                "Order {order} of {customer} from {date} is {status}. Total: {total}.",
                "{customer} placed order {order} on {date} for {total}; it is {status}.",
                "The order {order} ({total}) by {customer}, dated {date}, was {status}.",
                "Status of {order}: {status}. Customer {customer}, date {date}, total {total}.",
                "On {date}, {customer} paid {total} for order {order}, now {status}.",
                "{order} | {customer} | {date} | {total} | {status}",
                "Dear {customer}, your order {order} of {date} over {total} is {status}.",
            ],
            held_out=[
                "The order {order} from {date} by {customer} is {status}, the total is {total}.",
                "{customer} ordered on {date}. Order {order}, total {total}, is {status}.",
                "Order: {order}. Customer: {customer}. Total: {total}. It is {status} since {date}.",
            ],
        ),
        "Order {order}",
        {
            "customer": ("belongs to {customer}", "was placed by {customer}", "goes to {customer}", "is for {customer}"),
            "status": ("is {status}", "has the status {status}", "is now {status}"),
            "total": ("amounts to {total}", "costs {total}", "has a total of {total}"),
            "date": ("was made on {date}", "dates from {date}", "came in on {date}", "is of {date}"),
        },
    ),
    "event": Domain(
        {
            "event": Field(("event", "title", "name", "what"), "string", title),
            "date": Field(("date", "day", "when"), "string", made(invented.date)),
            "time": Field(("time", "start", "begins_at", "hour"), "string", made(invented.time)),
            "place": Field(("place", "venue", "location", "where"), "string", either(0.6, listed(VENUES), made(invented.name))),
            "guests": Field(("guests", "attendees", "people", "visitors"), "integer", whole(2, 900)),
            "free": Field(("free", "is_free", "free_entry"), "boolean", coin, flag("Entry is free", "Tickets cost money")),
        },
        Templates(
            train=[
                "{event} takes place on {date} at {time} in the {place}. {guests} guests are expected. {free}.",
                "On {date} at {time}, {guests} people meet for {event} at the {place}. {free}.",
                "{free}: {event}, {date}, {time}, {place}, for {guests} visitors.",
                "Join us at the {place} for {event} ({date}, {time}). {free}. Room for {guests}.",
                "The {place} hosts {event} on {date}. Doors open at {time}, {guests} seats. {free}.",
                "We invited {guests} guests to {event} in the {place} on {date}, starting {time}. {free}.",
            ],
            held_out=[
                "{event} starts at {time} on {date} in the {place}, with {guests} guests. {free}.",
                "{guests} people come to the {place} for {event} on {date} at {time}. {free}.",
            ],
        ),
        "{event}",
        {
            "date": ("is on {date}", "falls on {date}", "was moved to {date}"),
            "time": ("begins at {time}", "starts at {time}", "opens its doors at {time}"),
            "place": ("is held at the {place}", "takes place in the {place}", "happens in the {place}"),
            "guests": ("has {guests} guests", "welcomes {guests} people", "has seats for {guests}", "expects {guests} visitors"),
        },
    ),
    "pet": Domain(
        {
            "name": Field(("name", "pet_name", "called"), "string", either(0.3, listed(FIRST_NAMES), made(invented.name))),
            "animal": Field(("animal", "species", "kind", "type"), "string", word_or(ANIMALS)),
            "color": Field(("color", "fur", "colour"), "string", word_or(COLORS)),
            "age": Field(("age", "years", "old"), "integer", whole(1, 30)),
            "owner": Field(("owner", "keeper", "human"), "string", person),
            "vaccinated": Field(("vaccinated", "has_shots", "is_vaccinated"), "boolean", coin,
                                flag("is vaccinated", "is not vaccinated")),
        },
        Templates(
            train=[
                "{name} is a {color} {animal} of {age} years that belongs to {owner} and {vaccinated}.",
                "{owner} has a {color} {animal} named {name}. It is {age} years old and {vaccinated}.",
                "The {animal} {name} ({age}, {color}) {vaccinated}. Owner: {owner}.",
                "Our patient {name}, a {color} {animal} aged {age}, {vaccinated}. {owner} brought it in.",
                "A {age} year old {color} {animal} called {name} lives with {owner}; it {vaccinated}.",
            ],
            held_out=[
                "{owner} owns {name}, a {color} {animal} that is {age} years old and {vaccinated}.",
                "The {color} {animal} of {owner} is called {name}, is {age} years old and {vaccinated}.",
            ],
        ),
        "{name}",
        {
            "animal": ("is a {animal}", "is our {animal}", "is a lively {animal}"),
            "color": ("is {color}", "has {color} fur", "looks {color}"),
            "age": ("is {age} years old", "is {age}", "turned {age}", "has lived for {age} years"),
            "owner": ("belongs to {owner}", "lives with {owner}", "has the owner {owner}"),
            "vaccinated": ("{vaccinated}",),
        },
    ),
    "trip": Domain(
        {
            "from": Field(("from", "origin", "departure", "start"), "string", city),
            "to": Field(("to", "destination", "arrival", "goal"), "string", city),
            "date": Field(("date", "day", "travel_date"), "string", made(invented.date)),
            "passengers": Field(("passengers", "travellers", "seats", "people"), "integer", whole(1, 9)),
            "number": Field(("flight", "train", "number", "code"), "string", made(invented.code)),
            "size": Field(("luggage", "bag", "size"), "enum", member(SIZES), options=SIZES),
        },
        Templates(
            train=[
                "{number} goes from {from} to {to} on {date} with {passengers} passengers and a {size} bag.",
                "I need {passengers} seats from {from} to {to} on {date}. Number {number}, {size} luggage.",
                "On {date}, {passengers} people travel to {to}. They leave {from} on {number} with {size} bags.",
                "Booking {number}: {from} - {to}, {date}, {passengers} seats, {size} luggage.",
                "To {to} from {from} with {number} on {date}, {passengers} travellers, bags: {size}.",
            ],
            held_out=[
                "{passengers} people go from {from} to {to} with {number} on {date}. Their luggage is {size}.",
                "The trip {number} from {from} to {to} is on {date}: {passengers} seats, {size} bag.",
            ],
        ),
        "{number}",
        {
            "from": ("leaves from {from}", "starts in {from}", "departs from {from}"),
            "to": ("goes to {to}", "ends in {to}", "arrives in {to}", "is bound for {to}"),
            "date": ("runs on {date}", "is planned for {date}", "travels on {date}"),
            "passengers": ("carries {passengers} passengers", "has {passengers} seats", "takes {passengers} people"),
            "size": ("allows a {size} bag", "takes {size} luggage", "has room for {size} bags"),
        },
    ),
    "shopping": Domain(
        {
            "buyer": Field(("buyer", "name", "person", "customer"), "string", person),
            "items": Field(("items", "list", "goods", "foods", "bought"), "strings", several(word_or(FOODS)), listing),
            "shop": Field(("shop", "store", "market"), "string", company),
            "total": Field(("total", "paid", "sum", "price"), "number", price),
            "card": Field(("card", "paid_by_card", "by_card"), "boolean", coin, flag("by card", "in cash")),
        },
        Templates(
            train=[
                "{buyer} bought {items} at {shop} and paid {total} {card}.",
                "At {shop}, {buyer} paid {total} {card} for {items}.",
                "{items}: that is what {buyer} got at {shop}. It came to {total}, paid {card}.",
                "The {shop} bill of {buyer}: {items}, {total} {card}.",
                "I saw {buyer} buy {items} for {total} {card} at {shop}.",
            ],
            held_out=[
                "For {items}, {buyer} paid {total} at {shop} {card}.",
                "{buyer} went to {shop}, bought {items} and paid {total} {card}.",
            ],
        ),
        "{buyer}",
        {
            "items": ("bought {items}", "took home {items}", "needed {items}"),
            "shop": ("shopped at {shop}", "went to {shop}", "came back from {shop}"),
            "total": ("spent {total}", "was charged {total}", "handed over {total}"),
            "card": ("paid {card}", "settled it {card}"),
        },
    ),
    "ticket": Domain(
        {
            "id": Field(("id", "ticket", "ticket_id", "key"), "string", made(invented.code)),
            "user": Field(("user", "reporter", "author", "account"), "string", made(invented.identifier)),
            "component": Field(("component", "module", "part", "file"), "string", made(invented.identifier)),
            "priority": Field(("priority", "severity", "level"), "enum", member(LEVELS), options=LEVELS),
            "count": Field(("errors", "count", "times", "failures"), "integer", whole(1, 999)),
            "open": Field(("open", "is_open", "unresolved"), "boolean", coin, flag("still open", "closed")),
        },
        Templates(
            train=[
                "Ticket {id} by {user}: {component} failed {count} times. Priority {priority}, {open}.",
                "{user} reports {count} errors in {component}. The {priority} priority ticket {id} is {open}.",
                "[{id}] {component} - {count} errors - {priority} - {open} - {user}",
                "The module {component} crashed {count} times, says {user}. See {id} ({priority}, {open}).",
                "{id} is {open}. User {user}, component {component}, severity {priority}, {count} failures.",
            ],
            held_out=[
                "{user} opened ticket {id} about {component}: {count} errors, {priority} priority, {open}.",
                "{component} has {count} errors. Ticket {id} from {user} has {priority} priority and is {open}.",
            ],
        ),
        "Ticket {id}",
        {
            "user": ("was opened by {user}", "comes from {user}", "is by {user}"),
            "component": ("is about {component}", "concerns {component}", "names {component}"),
            "priority": ("has {priority} priority", "is of {priority} priority", "was rated {priority}"),
            "count": ("counts {count} errors", "lists {count} failures", "mentions {count} crashes"),
            "open": ("is {open}",),
        },
    ),
    "country": Domain(
        {
            "country": Field(("country", "name", "nation"), "string", either(0.5, listed(COUNTRIES), made(invented.name))),
            "capital": Field(("capital", "city", "capital_city"), "string", city),
            "population": Field(("population", "inhabitants", "people"), "integer", whole(1000, 9999999)),
            "code": Field(("code", "calling_code", "phone"), "string", made(invented.phone)),
        },
        Templates(
            train=[
                "The capital of {country} is {capital}. It has {population} inhabitants; call {code}.",
                "{country}: capital {capital}, population {population}, phone {code}.",
                "{population} people live in {country}, whose capital is {capital} (phone {code}).",
                "{capital} is the capital of {country}, where {population} people live. Dial {code}.",
            ],
            held_out=["{country} has {population} people and its capital is {capital}. Phone: {code}.",
                      "With {population} inhabitants and the capital {capital}, {country} has the phone number {code}."],
        ),
        "{country}",
        {
            "capital": ("has the capital {capital}", "is ruled from {capital}", "built its parliament in {capital}"),
            "population": ("has {population} inhabitants", "counts {population} people", "is home to {population}"),
            "code": ("has the phone number {code}", "can be called under {code}"),
        },
    ),
}
