"""Sources of values that several tasks share: functions of a `Source` that draw one value."""
from typing import Callable

import invented
from source import Source
from words.people import FIRST_NAMES, LAST_NAMES
from words.places import CITIES
from words.things import COMPANIES, PRODUCTS, TITLE_WORDS


def either(probability: float, first: Callable, second: Callable) -> Callable:
    """The first maker with a probability, else the second."""
    return lambda source: (first if source.chance(probability) else second)(source)


def listed(values) -> Callable:
    """An entry of a word list."""
    return lambda source: source.value(values)


def made(make) -> Callable:
    """An invented value."""
    return lambda source: source.invent(make)


def whole(low: int, high: int) -> Callable:
    """A whole number of a range."""
    return lambda source: source.integer(low, high)


def person(source: Source) -> str:
    """A first name, often with a last name, listed or invented."""
    first = source.value(FIRST_NAMES) if source.chance(0.4) else source.invent(invented.name)
    if source.chance(0.4):
        return first
    return f"{first} {source.value(LAST_NAMES) if source.chance(0.4) else source.invent(invented.name)}"


def title(source: Source) -> str:
    """Two or three capitalised words: `Silent Harbor`."""
    return " ".join(source.value(TITLE_WORDS).capitalize() for _ in range(source.integer(2, 3)))


def several(one: Callable) -> Callable:
    """Two to four different values of a source."""
    def make(source: Source) -> list:
        picked = []
        for _ in range(source.integer(2, 4)):
            value = one(source)
            if value not in picked:
                picked.append(value)
        return picked
    return make


def flag(yes: str, no: str) -> Callable:
    """How prose says a boolean."""
    return lambda value: yes if value else no


def coin(source: Source) -> bool:
    """True or false."""
    return source.chance(0.5)


def member(options: tuple) -> Callable:
    """A member of an enum; not split, since the prompt lists them all."""
    return lambda source: source.choice(options)


def price(source: Source) -> float:
    """A price, as `invented.amount` makes it. Prices are numbers and not split."""
    return invented.amount(source.random)


def word_or(values) -> Callable:
    """A listed word or, as often, an invented one: so that the list can't be guessed from its first letters."""
    return either(0.5, listed(values), made(invented.word))


city = either(0.5, listed(CITIES), made(invented.name))
company = either(0.5, listed(COMPANIES), made(invented.name))
thing = either(0.7, listed(PRODUCTS), made(invented.word))
