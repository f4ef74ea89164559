"""Reasoning: small sums, differences and comparisons, worked out between `<think>` and `</think>`.

The thought does digit by digit what the answer needs, so that each step is small enough for a small
model. Pairs of numbers are split between training and evaluation like any other value.
"""
import invented
from sample import Sample, ask
from source import Source, Templates, is_held_out
from words import more
from words.people import FIRST_NAMES
from words.things import FOODS, PRODUCTS

DRILL_SHARE = 0.2

SUM = Templates(
    train=["What is {a} + {b}?", "{a} + {b} = ?", "Add {a} and {b}.", "Compute {a} plus {b}.", "How much is {a} + {b}?",
           "What is the sum of {a} and {b}?", "{name} has {a} {item}s and buys {b} more. How many {item}s are there now?",
           "There are {a} {item}s in one box and {b} in another. How many {item}s is that together?",
           "{name} sold {a} {item}s on Monday and {b} on Tuesday. How many in all?",
        "Can you calculate {a} + {b}?",
        "Calculate the sum of {a} and {b}.",
        "{a} + {b}",
        "{a} plus {b}",
        "Work out {a} + {b}.",
        "Solve: {a} + {b}",
        "If you add {a} to {b}, what do you get?",
        "{name} has {a} {item}s. {name} gets {b} {item}s more. How many does {name} have?",
        "Please add up {a} and {b}.",
        "I have {a} {item}s and you have {b}. How many do we have?"],
    held_out=["Calculate {a} + {b}.", "What do you get when you add {a} and {b}?",
              "{name} has {a} {item}s and gets {b} more. How many {item}s does {name} have now?"],
)
DIFFERENCE = Templates(
    train=["What is {a} - {b}?", "{a} - {b} = ?", "Subtract {b} from {a}.", "Compute {a} minus {b}.", "How much is {a} - {b}?",
           "{name} has {a} {item}s and gives away {b}. How many {item}s are left?",
           "A shop had {a} {item}s and sold {b}. How many are left?",
        "Can you calculate {a} - {b}?",
        "Calculate the difference of {a} and {b}.",
        "{a} - {b}",
        "{a} minus {b}",
        "Work out {a} - {b}.",
        "Solve: {a} - {b}",
        "If you take {b} away from {a}, what is left?",
        "{name} had {a} {item}s, but {b} are gone. How many does {name} have left?",
        "Take {b} from {a}.",
        "I had {a} {item}s and lost {b}. How many do I have now?"],
    held_out=["Calculate {a} - {b}.", "What is left when you take {b} from {a}?",
              "{name} had {a} {item}s and gave away {b}. How many {item}s are left?"],
)
COMPARE = Templates(
    train=["{a} and {b}, which is {more}?", "Which is {more}, {a} or {b}?", "Which number is {more}: {a} or {b}?",
           "Compare {a} and {b}. Which one is {more}?", "Tell me which is {more}: {a}, {b}.", "What is {more}, {a} or {b}?",
        "Of the two numbers {a} and {b}, name the {more} one.",
        "Is {a} {more} than {b}? Name the {more} one.",
        "The {more} of {a} and {b} is?",
        "{a} or {b}: which one is {more}?",
        "Which of these is {more}? {a} {b}",
        "Find the {more} number: {a} and {b}."],
    held_out=["Of {a} and {b}, which is {more}?", "Which of the numbers {a} and {b} is {more}?"],
)


# Parts of which training's own stories are put together. {a} and {b} are the numbers, {n} and {m} people, {i} the things.
HAVE = ["{n} has {a} {i}.", "{n} had {a} {i}.", "There are {a} {i} in a box.", "{n} owns {a} {i}.", "A shop has {a} {i}.", "{n} picked {a} {i}.", "On Monday {n} sold {a} {i}.", "In the morning {n} counted {a} {i}.", "A farmer has {a} {i}.", "There were {a} {i} on the table.", "I have {a} {i}.", "{n} baked {a} {i}.", "{n} read {a} pages.", "A bus has {a} passengers.",
        "{n} saved {a} euros.", "There are {a} children in one class.", "{n} ran {a} kilometers.", "A train carries {a} people.", "{n} collected {a} {i} last week.", "We bought {a} {i}.", "A library has {a} books on a shelf.", "{n} scored {a} points in the first game.", "{n} is {a} years old.", "In a garden there are {a} red flowers.", "{n} paid {a} dollars for a shirt."]
MORE = ["{n} buys {b} more.", "{n} gets {b} more.", "Then {b} more arrive.", "{m} gives {n} {b} more.", "{b} more are added.", "Then {n} finds another {b}.", "Later {n} got {b} more from {m}.", "{m} brings {b} more.", "Another {b} came later.", "{n} receives {b} as a gift.", "{n} bought another {b}.", "The next day there were {b} more.", "{b} more came in.", "Then {m} added {b}.", "After that, {b} more followed."]
TOTAL = ["How many {i} are there now?", "How many are there in total?", "How many does {n} have now?", "How many is that altogether?", "What is the total?", "How many in all?", "How many {i} does {n} have?", "How many is that?", "What is the number now?", "How much is that together?", "How many does that make?", "How many are there altogether?", "Find the total."]
PAIRS = ["{n} has {a} {i} and {m} has {b}. How many do they have together?", "There are {a} {i} here and {b} there. How many in total?", "{n} ate {a} {i} and {m} ate {b}. How many did they eat in all?", "One class has {a} pupils, another has {b}. How many pupils is that?", "A book costs {a} euros and a pen {b} euros. How much do they cost together?", "{n} walked {a} km on Monday and {b} km on Tuesday. How far did {n} walk?",
         "{n} worked {a} hours this week and {b} hours last week. How many hours is that?", "A basket holds {a} apples and {b} pears. How many pieces of fruit are in it?", "There are {a} boys and {b} girls in the school choir. How many children sing?", "{n} is {a} years old. How old will {n} be in {b} years?", "The first shelf has {a} books, the second {b}. How many books are there?", "{n} spent {a} dollars on food and {b} dollars on drinks. What did {n} spend in total?",
         "A team scored {a} points in the first half and {b} in the second. What was the final score?", "{a} cars are in the street and {b} in the garage. How many cars are there?", "On Saturday {a} people came, on Sunday {b}. How many people came at the weekend?", "{n} planted {a} trees, {m} planted {b}. How many trees were planted?", "A recipe needs {a} grams of sugar and {b} grams of flour. How many grams is that?", "Between {n} and {m} there are {a} {i} plus {b} {i}. How many?",
         "{n} found {a} shells and her sister found {b}. How many shells did they find?", "The bill is {a} dollars and the tip is {b} dollars. How much is it in total?", "{a} people are on the bus and {b} get on. How many people are on the bus now?", "It is {a} degrees and gets {b} degrees warmer. How warm is it now?", "{n} typed {a} words, then {b} words. How many words in all?", "{n} has read {a} pages and still has {b} to go. How many pages does the book have?"]
LESS = ["{n} gives away {b}.", "{b} are sold.", "{n} loses {b}.", "{m} takes {b} of them.", "{n} eats {b}.", "{b} are gone.", "Then {b} leave.", "{n} uses {b}.", "{n} gave {b} to {m}.", "{b} of them break.", "{n} sells {b} of them.", "{b} are taken away.", "{n} spends {b}."]
LEFT = ["How many are left?", "How many {i} are left?", "How many does {n} have left?", "How many remain?", "What is left?", "How many are there now?", "How many does {n} still have?"]
PAIRS_LESS = ["{n} has {a} {i}, {m} has {b}. How many more does {n} have?", "A book has {a} pages and {n} has read {b}. How many pages are left?", "{n} has {a} euros and spends {b}. How much is left?", "There were {a} people at the party, {b} went home. How many stayed?", "{n} is {a} and {m} is {b}. How many years older is {n}?", "The trip is {a} km long. After {b} km, how far is it still?", "A rope is {a} meters long. {n} cuts off {b} meters. How long is it now?",
              "It was {a} degrees and got {b} degrees colder. What is the temperature?", "{n} needs {a} points and has {b}. How many are missing?", "Of {a} eggs, {b} are broken. How many are whole?", "A ticket costs {a} dollars, with a discount of {b} dollars. What do I pay?", "{a} birds sit on a roof and {b} fly away. How many are left?"]
BARE = ["{a}{o}{b}", "{a}{o}{b}=", "{a}{o}{b} = ?", "{a}{o}{b}?", "What is {a}{o}{b}?", "What's {a}{o}{b}?", "Calculate {a}{o}{b}", "Compute {a}{o}{b}.", "Tell me {a}{o}{b}", "How much is {a}{o}{b}?", "Please compute {a}{o}{b}", "Do you know what {a}{o}{b} is?", "Evaluate: {a}{o}{b}", "Give me the result of {a}{o}{b}", "{a}{o}{b} equals?", "Result of {a}{o}{b}?", "Answer: {a}{o}{b}", "Solve {a}{o}{b}.", "What does {a}{o}{b} make?"]
ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()
ITEMS = "apples oranges pears books pens marbles cookies eggs stamps coins cards balls flowers sheep cows chairs bottles candies toys stickers balloons bricks tickets bananas muffins lemons pencils shells stones cups plates fish".split()


def in_words(number: int) -> str:
    """A number below 100 in words."""
    if number < 20:
        return ONES[number]
    return TENS[number // 10] + (f"-{ONES[number % 10]}" if number % 10 else "")


def story(source: Source, a: int, b: int, plus: bool) -> str:
    """A little story, or the bare sum, for training."""
    if source.chance(0.4):
        sign = ("+", " + ", " + ", " plus ") if plus else ("-", " - ", " - ", " minus ")
        text = source.choice(BARE)
    else:
        sign = ("",)
        if source.chance(0.5):
            text = source.choice(PAIRS if plus else PAIRS_LESS)
        else:
            text = f"{source.choice(HAVE)} {source.choice(MORE if plus else LESS)} {source.choice(TOTAL if plus else LEFT)}"
    shown = str
    if max(a, b) < 100 and source.chance(0.07):
        shown = in_words
    n, m = source.value(FIRST_NAMES + more.FIRST), source.value(FIRST_NAMES + more.FIRST)
    items = source.choice(ITEMS) if source.chance(0.7) else source.choice(FOODS + PRODUCTS) + "s"
    text = text.format(a=shown(a), b=shown(b), n=n, m=m, i=items, o=source.choice(sign))
    return text[:1].upper() + text[1:]


def add_thought(a: int, b: int) -> str:
    """Column addition, from the ones to the left: `ones 7 + 8 = 15, write 5, carry 1.`"""
    steps, carry = [], 0
    width = max(len(str(a)), len(str(b)))
    for place in range(width):
        x, y = a // 10**place % 10, b // 10**place % 10
        total = x + y + carry
        term = f"{x} + {y} + {carry} = {total}"
        carry = total // 10
        steps.append(f"{term}, write {total % 10}, carry {carry}.")
    return f"{spread(a, width)} + {spread(b, width)}\n" + "\n".join(steps) + f"\nSo {a} + {b} = {a + b}."


def subtract_thought(a: int, b: int) -> str:
    """Column subtraction; `a` is at least `b`."""
    steps, borrow = [], 0
    width = len(str(a))
    for place in range(width):
        x, y = a // 10**place % 10, b // 10**place % 10
        left = x - y - borrow
        if left < 0:
            steps.append(f"1{x} - {y} - {borrow} = {left + 10}, write {left + 10}, borrow 1.")
            borrow = 1
        else:
            steps.append(f"{x} - {y} - {borrow} = {left}, write {left}, borrow 0.")
            borrow = 0
    return f"{spread(a, width)} - {spread(b, width)}\n" + "\n".join(steps) + f"\nSo {a} - {b} = {a - b}."


def spread(number: int, width: int) -> str:
    """The digits with spaces between, filled with zeros to a width: 7 in width 2 is `0 7`."""
    return " ".join(str(number).zfill(width))


def compare_thought(a: str, b: str, greater: bool) -> tuple[str, str]:
    """The digits side by side until two differ; returns the thought and the answer."""
    (whole_a, _, part_a), (whole_b, _, part_b) = a.partition("."), b.partition(".")
    width, depth = max(len(whole_a), len(whole_b)), max(len(part_a), len(part_b))
    digits_a = whole_a.zfill(width) + part_a.ljust(depth, "0")
    digits_b = whole_b.zfill(width) + part_b.ljust(depth, "0")
    steps = [f"{' '.join(digits_a)} and {' '.join(digits_b)}"]
    for x, y in zip(digits_a, digits_b):
        if x == y:
            steps.append(f"{x} and {y}: same.")
            continue
        steps.append(f"{x} and {y}: {max(x, y)} is more.")
        larger, smaller = (a, b) if x > y else (b, a)
        answer = larger if greater else smaller
        steps.append(f"So {larger} is greater, {smaller} is smaller.")
        return "\n".join(steps), answer
    raise ValueError("the numbers are equal")


def operands(source: Source) -> tuple[int, int]:
    """Two numbers of up to three digits whose pair belongs to this side."""
    while True:
        a, b = (source.integer(*source.choice([(1, 9), (10, 99), (10, 99), (100, 999)])) for _ in range(2))
        if is_held_out(f"{a},{b}") == source.held_out:
            return a, b


def decimals(source: Source) -> tuple[str, str]:
    """Two unequal numbers, often alike at the start: `9.11` and `9.8`."""
    while True:
        kind = source.integer(0, 2)
        if kind == 0:
            a, b = (str(source.integer(1, 999)) for _ in range(2))
        else:
            whole = source.integer(0, 99) if source.chance(0.4) else source.integer(0, 9)
            other = whole if kind == 1 else source.integer(0, 99)
            a, b = (f"{w}.{source.integer(1, 99 if source.chance(0.5) else 9)}" for w in (whole, other))
        if float(a) != float(b) and is_held_out(f"{a},{b}") == source.held_out:
            return a, b


def drill(source: Source) -> Sample:
    """The single steps of the thoughts, many at once and without the sums around them. Training only."""
    steps = []
    for _ in range(source.integer(4, 12)):
        x, y, carry = source.integer(0, 9), source.integer(0, 9), source.integer(0, 1)
        if source.chance(0.5):
            steps.append((f"{x} + {y} + {carry}", x + y + carry))
        else:
            left = x - y - carry
            steps.append((f"{x} - {y} - {carry}", left) if left >= 0 else (f"1{x} - {y} - {carry}", left + 10))
    questions = source.choice((", ", "; ", "\n")).join(step for step, _ in steps)
    return Sample("reasoning", ask(f"Practice: {questions}"), "\n".join(f"{step} = {result}" for step, result in steps))


def make(source: Source) -> Sample:
    if not source.held_out and source.chance(DRILL_SHARE):
        return drill(source)
    kind = source.choice((0, 0, 0, 1, 1, 2, 2))
    if kind == 2:
        a, b = decimals(source)
        greater = source.chance(0.6)
        more = source.choice(["greater", "bigger", "larger"] if greater else ["smaller", "less"])
        thought, answer = compare_thought(a, b, greater)
        return Sample("reasoning", ask(source.template(COMPARE).format(a=a, b=b, more=more)), answer, thought=thought)
    a, b = operands(source)
    if kind == 1 and a < b:
        a, b = b, a
    if source.held_out_templates or source.chance(0.3):
        wording = source.template((SUM, DIFFERENCE)[kind])
        prompt = wording.format(a=a, b=b, name=source.value(FIRST_NAMES), item=source.choice(FOODS + PRODUCTS))
    else:
        prompt = story(source, a, b, kind == 0)
    thought = (add_thought, subtract_thought)[kind](a, b)
    return Sample("reasoning", ask(prompt), str((a + b, a - b)[kind]), thought=thought)


def judge(sample: Sample, text: str) -> bool:
    """The answer after the thought; the thought itself is free."""
    if sample.thought is None:
        return text == sample.answer
    before, closed, answer = text.partition("</think>")
    return bool(closed) and before.startswith("<think>") and answer.strip() == sample.answer
