"""Values that exist nowhere: names from syllables, codes, identifiers, dates, amounts.

They make the model copy from the prompt, since nothing about them can be remembered. Every function
takes a `random.Random` and fits `Source.invent`.
"""
import string

PIECES_SHARE = 0.5
LOWER_PIECES, CAPITAL_PIECES = [], []  # runs of letters in the tokenizer's vocabulary, once `learn_pieces` was called

SIMPLE_ONSETS = "b c d f g h j k l m n p r s t v w y z".split()
ONSETS = SIMPLE_ONSETS * 3 + "br ch cl cr dr fl fr gl gr kr pl pr qu sc sh sk sl sm sn sp st str th tr vl wh x zh".split()
VOWELS = "a e i o u".split() * 8 + "ae ai au ea ee ei ia ie io oa oo ou ue ui y".split()
CODAS = [""] * 30 + list("bdfgklmnprstvxz") + "ck ld lf lk lm lt mp nd ng nk nt rd rk rl rm rn rt sh sk ss st th".split()
ENDINGS = [""] * 8 + ["us", "is", "on", "en", "ar", "or", "ia", "a", "o", "el", "il", "ix", "um", "eth", "ane", "ine"]


def learn_pieces(vocabulary):
    """Lets half of the words from now on be made of tokens, so that training copies every token of the vocabulary.

    A token that training never writes stays a token that the model can't write, and held-out names have such tokens.
    """
    LOWER_PIECES[:] = sorted(token for token in vocabulary if token.isascii() and token.isalpha() and token.islower())
    CAPITAL_PIECES[:] = sorted(token for token in vocabulary if token.isascii() and token.isalpha() and token.istitle())


def word(r) -> str:
    """A lower-case word of one to three syllables, `brosk` or `talune`, or of the vocabulary's pieces."""
    if LOWER_PIECES and r.random() < PIECES_SHARE:
        return "".join(r.choice(LOWER_PIECES) for _ in range(r.choice((1, 2, 2, 3))))
    syllables = r.choices((1, 2, 3), (3, 5, 1))[0]
    text = "".join(r.choice(ONSETS) + r.choice(VOWELS) + r.choice(CODAS) for _ in range(syllables))
    return text + r.choice(ENDINGS)


def name(r) -> str:
    """A capitalised invented word: `Velkan`."""
    if CAPITAL_PIECES and r.random() < PIECES_SHARE:
        return "".join([r.choice(CAPITAL_PIECES)] + [r.choice(LOWER_PIECES) for _ in range(r.choice((0, 1, 1)))])
    return word(r).capitalize()


def full_name(r) -> str:
    """A first and a last name: `Tavi Brosken`."""
    return f"{name(r)} {name(r)}"


def letters(r) -> str:
    """A random run of letters in one case or mixed: `qXbt`, `zvk`."""
    alphabet = r.choice((string.ascii_lowercase, string.ascii_uppercase, string.ascii_letters))
    return "".join(r.choice(alphabet) for _ in range(r.randint(2, 7)))


def code(r) -> str:
    """A code of letters and digits, as on parts and orders: `KX-2047`, `b7Q9z`, `AB12`."""
    kind = r.randrange(5)
    if kind == 0:
        return "".join(r.choice(string.ascii_uppercase) for _ in range(r.randint(1, 3))) + "-" + digits(r)
    if kind == 1:
        return "".join(r.choice(string.ascii_letters + string.digits) for _ in range(r.randint(4, 8)))
    if kind == 2:
        return "".join(r.choice(string.ascii_uppercase) for _ in range(r.randint(1, 3))) + digits(r)
    if kind == 3:
        return "".join(r.choice("0123456789abcdef") for _ in range(r.randint(6, 8)))
    return digits(r) + "-" + digits(r)


def digits(r) -> str:
    return "".join(r.choice(string.digits) for _ in range(r.randint(2, 5)))


def identifier(r) -> str:
    """A name as programs have it: `brosk_id`, `talKrin`, `max_vel`."""
    kind = r.randrange(4)
    if kind == 0:
        return word(r)
    if kind == 1:
        return f"{word(r)}_{r.choice(('id', 'name', 'date', 'count', 'code', 'type', 'size', 'level', 'rate', 'total'))}"
    if kind == 2:
        return word(r) + name(r)
    return f"{word(r)}_{word(r)}"


MONTHS = ("January February March April May June July August September October November December").split()


def date(r) -> str:
    """A date in one of three spellings: `2024-03-09`, `9 March 2024`, `March 9`."""
    year, month, day = r.randint(1950, 2035), r.randint(1, 12), r.randint(1, 28)
    kind = r.randrange(3)
    if kind == 0:
        return f"{year}-{month:02}-{day:02}"
    if kind == 1:
        return f"{day} {MONTHS[month - 1]} {year}"
    return f"{MONTHS[month - 1]} {day}"


def time(r) -> str:
    """A time of day: `08:45`."""
    return f"{r.randint(0, 23):02}:{r.choice((0, 5, 10, 15, 20, 30, 40, 45, 50)):02}"


def phone(r) -> str:
    """A phone number: `555-0142`, `+44 2031 4477`."""
    if r.random() < 0.5:
        return f"{r.randint(100, 999)}-{r.randint(0, 9999):04}"
    return f"+{r.randint(1, 99)} {r.randint(1000, 9999)} {r.randint(1000, 9999)}"


def amount(r) -> float:
    """A price or measure whose text is the same in prose and in JSON: 12.5, 349.99, 8.75."""
    value = round(r.randint(1, 999) + r.randint(1, 99) / 100, 2)
    return value


def email(r) -> str:
    """An e-mail address of invented parts."""
    return f"{word(r)}.{word(r)}@{word(r)}.{r.choice(('com', 'org', 'net', 'io'))}"
