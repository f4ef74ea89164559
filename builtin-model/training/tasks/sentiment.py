"""Sentiment: one sentence in, `positive` or `negative` out.

A sentence is a template over praising (`{good}`) and condemning (`{bad}`) words; a `Frame` says which
way the template as a whole points when its slot holds a praising word. "Not {x}" turns it round.
"""
from sample import Sample, ask
from source import Source, Templates
from tasks.english import capitalized, with_articles
from words.opinions import COMPLAINTS, NEGATIVE, POSITIVE, PRAISE, SUBJECTS
from words.things import COMPANIES

PROMPTS = Templates(
    train=[
        "Classify this sentiment: {text}",
        "Classify the sentiment of this sentence: {text}",
        "Is this review positive or negative? {text}",
        "Sentiment, positive or negative: {text}",
        "Tell me whether this is positive or negative.\n{text}",
        "{text}\nIs that positive or negative?",
        "Text: {text}\nSentiment:",
        "Label this sentence as positive or negative: {text}",
        "What is the sentiment of the following review?\n{text}",
        "Answer with one word, positive or negative. {text}",
        "Review: {text} What does the writer feel, positive or negative?",
        "Rate the sentiment of this text: {text}",
        "Decide: positive or negative?\n\n{text}",
        "Classify as positive or negative: {text}",
        "What is the sentiment here? {text}",
        "Sentence: {text}\nPositive or negative?",
        "Does the writer sound positive or negative? {text}",
        "Find the sentiment: {text}",
        "{text}\nSentiment?",
    ],
    held_out=[
        "What is the sentiment of this sentence? {text}",
        "Classify this review as positive or negative: {text}",
        "Does this text sound positive or negative?\n{text}",
        "Sentence: {text}\nSentiment (positive or negative):",
    ],
)

# Slots: {thing} a subject, {brand} a name, {x} and {y} words of the sentence's own side, {other} a word
# of the opposite side, {remark} a whole remark of its own side.
SENTENCES = Templates(
    train=[
        "{brand} is {x}!",
        "The {thing} was {x}.",
        "The {thing} is {x} and {y}.",
        "What a {x} {thing}!",
        "I think the {thing} is really {x}.",
        "This {thing} from {brand} is {x}, {remark}.",
        "The {thing} was {x}. The {thing2} was {y}.",
        "The {thing} was {x}, and {remark}.",
        "{remark}.",
        "The {thing} at {brand} was so {x} that I told all my friends.",
        "Honestly, the {thing} felt {x}.",
        "We found the {thing} {x} and the {thing2} {y}.",
        "The {thing} was not {other} at all, it was {x}.",
        "The {thing} was not {other}.",
        "I never found the {thing} {other}, {remark}.",
        "Although the {thing2} was {other}, the {thing} was {x} and {remark}.",
        "The {thing2} looked {other} at first, but in the end it was {x}.",
        "My {thing} arrived yesterday: {x}, simply {y}.",
        "Everyone said it would be {other}, but the {thing} turned out {x}.",
        "Such a {x} {thing}, {remark}.",
        "{brand} made a {x} {thing}.",
        "Rarely have I seen a {thing} this {x}.",
        "The new {thing} is {x}; {remark}.",
        "A {x} {thing} and a {y} {thing2}.",
        "Very {x}.",
        "It was {x}, {remark}.",
        "Last week I tried the {thing} of {brand}: {remark}.",
        "Today I saw the {thing} and {remark}.",
        "In a word: {x}.",
        "{brand} is known for its {x} {thing}.",
        "{x}, {x}, {x}! {remark}.",
        "We had a {x} {thing}, {remark}.",
        "I got a {thing} from {brand}. {remark}.",
    ],
    held_out=[
        "I must say the {thing} was {x}, {remark}.",
        "{brand} has a very {x} {thing}.",
        "The {thing} we got was {x} and the {thing2} was {y} too.",
        "I expected a {other} {thing}, but it was {x}.",
        "The {thing} is not {other}, {remark}.",
        "So {x}! {remark}.",
        "Yesterday I tried the {thing} from {brand} and {remark}.",
        "In short: a {x} {thing}.",
    ],
)


def sentence(source: Source, positive: bool) -> str:
    own, opposite = (POSITIVE, NEGATIVE) if positive else (NEGATIVE, POSITIVE)
    x, y = source.sample(own, 2)
    thing, thing2 = source.sample(SUBJECTS, 2)
    text = source.template(SENTENCES).format(
        brand=source.value(COMPANIES), thing=thing, thing2=thing2, x=x, y=y, other=source.choice(opposite),
        remark=source.choice(PRAISE if positive else COMPLAINTS),
    )
    return with_articles(capitalized(text))


def make(source: Source) -> Sample:
    positive = source.chance(0.5)
    prompt = source.template(PROMPTS).format(text=sentence(source, positive))
    answer = "positive" if positive else "negative"
    return Sample("sentiment", ask(prompt), answer, facts={"thought": f"The writer's words sound {answer}."})


def judge(sample: Sample, text: str) -> bool:
    return text.strip() == sample.answer
