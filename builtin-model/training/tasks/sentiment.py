"""Sentiment: a sentence or a whole review in, `positive` or `negative` out.

A review is built of parts: clauses that praise or condemn (`words/reviews.py`), things with adjectives, negations,
contrasts whose main clause decides, and sentences that say neither. Clauses are split between training and evaluation
by their text; adjectives are not.
"""
import re

import invented
from sample import Sample, ask
from source import Source, Templates
from tasks.english import capitalized, with_articles
from words.people import FIRST_NAMES
from words.places import CITIES
from words.reviews import (BAD_VERBS, BADLY, CHARM, CLOSERS, CONDEMNING_ADJECTIVES, CONTRASTS, DISLIKED, DISPLEASED, DOMAINS, DONE, FLAWS,
                           GENERAL_BAD, GENERAL_GOOD, GLAD, GOOD_VERBS, INTENSIFIERS, LIKED, OPENERS, PLEASED, PRAISING_ADJECTIVES, SORRY, WELL)
from words.things import COMPANIES, FOODS, PRODUCTS

PROMPTS = Templates(
    train=[
        "Classify this sentiment: {text}",
        "Classify the sentiment of this sentence: {text}",
        "Is this review positive or negative? {text}",
        "Is this positive or negative? {text}",
        "Is this positive or negative?\n\n{text}",
        "Sentiment, positive or negative: {text}",
        "Tell me whether this is positive or negative.\n{text}",
        "{text}\nIs that positive or negative?",
        "{text}\n\nIs the review above positive or negative?",
        "Text: {text}\nSentiment:",
        "Review: {text}\nSentiment:",
        "Review: {text}",
        "Label this sentence as positive or negative: {text}",
        "What is the sentiment of the following review?\n{text}",
        "What's the sentiment of this review? {text}",
        "Answer with one word, positive or negative. {text}",
        "Answer positive or negative.\n{text}",
        "Review: {text} What does the writer feel, positive or negative?",
        "Rate the sentiment of this text: {text}",
        "Rate this review: {text}",
        "Decide: positive or negative?\n\n{text}",
        "Classify as positive or negative: {text}",
        "Classify this as positive or negative: {text}",
        "Classify the following text as positive or negative.\n{text}",
        "What is the sentiment here? {text}",
        "Sentence: {text}\nPositive or negative?",
        "Does the writer sound positive or negative? {text}",
        "Find the sentiment: {text}",
        "{text}\nSentiment?",
        "{text}\nPositive or negative?",
        "Positive or negative? {text}",
        "Positive or negative: {text}",
        "Sentiment: {text}",
        "Sentiment of this? {text}",
        "Did this customer like it? Answer positive or negative. {text}",
        "A customer wrote: {text} Is the customer's opinion positive or negative?",
        "Does this review praise or complain? Say positive or negative.\n{text}",
        "How does the author feel about it, positive or negative?\n{text}",
        "Here is a review: {text}\nReply with positive or negative only.",
        "Analyze the sentiment: {text}",
        "Do a sentiment analysis of the following text: {text}",
        "Determine if the following review is positive or negative: {text}",
        "Judge the mood of this comment (positive/negative): {text}",
        "Comment: {text}\nLabel (positive or negative):",
        "Please classify: {text}",
        "I got this feedback: {text} Is it positive or negative?",
        "What do you think, is this a positive or a negative review? {text}",
        "Tag the sentiment of this message. {text}",
        "Sentiment analysis. Options: positive, negative.\n{text}",
        "Would you say this is negative or positive? {text}",
        "Is the tone of this text positive or negative? {text}",
        "{text}\n\nClassify the sentiment.",
    ],
    held_out=[
        "What is the sentiment of this sentence? {text}",
        "Classify this review as positive or negative: {text}",
        "Does this text sound positive or negative?\n{text}",
        "Sentence: {text}\nSentiment (positive or negative):",
    ],
)

# Slots: {s} a thing with its article, {n} the bare thing, {x} and {y} adjectives of the sentence's own side, {other} one of the
# opposite side, {brand} a name, {very} an intensifier, {own} and {own2} clauses of its own side.
SENTENCES = Templates(
    train=[
        "{brand} is {x}!", "{s} was {x}", "{s} is {x} and {y}", "what a {x1} {n}!", "I think {s} is {very} {x1}", "{s} was {x}, and {own}", "{s} was {x}. {own}",
        "{s} at {brand} was so {x1} that I told all my friends", "{s} felt {x}", "we found {s} {x} and {s2} {y}", "{s} was {very} {x1}, {s2} was {y}",
        "{s} was not {other}, it was {x}", "I never found {s} {other1}, {own}", "{x}!", "{very} {x1}", "{x} and {y}", "{x}, {y} and {x2}", "{x1} {n}, {x2} {n2}", "{x1} {n}",
        "{s} looked {other1} at first, but in the end it was {x}", "my {n} arrived yesterday: {x}, simply {y}", "everyone said it would be {other}, but {s} turned out {x}",
        "such a {x1} {n}, {own}", "{brand} made a {x1} {n}", "rarely have I seen a {n} this {x1}", "the new {n} is {x}; {own}", "a {x1} {n} and a {y1} {n2}",
        "it was {x}, {own}", "last week I tried {s} of {brand}: {own}", "I saw {s} and {own}", "in a word: {x}", "{brand} is known for its {x1} {n}", "I got a {n} from {brand}. {own}",
        "{s} could not have been more {x1}", "{s} couldn't be more {x1}", "how {x1} {s} is!", "one of the most {x1} things I know", "it is {very} {x1}", "{s} seems {x} to me",
        "I was expecting {other1} things, but {s} was {x}", "there was nothing {other1} about {s}", "nothing {other1} here", "{s} is anything but {other1}", "{s} is far from {other1}",
        "{s} was hardly {other1}", "{s} wasn't {other1} in the least", "{s} {verb}", "{s} {verb}", "{s} {verb}", "{s} {verb} and {s2} {verb2}", "{s} from {brand} {verb}", "{brand} {verb}", "{s} {verb}. {own}",
        "{s} is {x}, {s2} is {y}, and {own}", "I find {s} {x1} and {y1}", "if you want something {x1}, take {s}", "{s}: {x}", "{n}: {x}, {n2}: {y}", "I was told it was {other1}. It was {x}",
        "from {s} to {s2}, everything was {x}", "everything about it is {x}", "not {other1} but {x1}", "if only everything were as {x1} as {s}" , "{s} was {x}; I'd never call it {other1}",
        "{s} and {s2} were both {x1}", "{brand} has a {x1} {n}", "more {x1} than I thought", "as {x1} as it gets", "{s} was even more {x1} than {s2}", "{s} has become {x}", "it's {x1}. Really {y1}",
    ],
    held_out=[
        "I must say {s} was {x}, {own}", "{brand} has a {very} {x1} {n}", "{s} we got was {x} and {s2} was {y} too", "I expected a {other1} {n}, but it was {x}",
        "{s} is not {other}, {own}", "so {x1}! {own}", "yesterday I tried {s} from {brand} and {own}", "in short: a {x1} {n}", "{s} {verb}, {own}",
    ],
)
NEGATED_PRAISE = Templates(  # condemnation by denying praise
    train=["{s} was not {x1}", "{s} wasn't {very} {x1}", "{s} is not {x1} at all", "I don't find {s} {x1}", "I wouldn't call {s} {x1}", "hardly {x1}", "{s} is neither {x1} nor {y1}", "{s} was far from {x1}",
           "{s} is supposed to be {x1}. It isn't", "they promised {x1} things and {s} was nothing of the kind", "I wish {s} had been {x1}", "{s} could have been {x1}, but it wasn't", "{s} is not as {x1} as they say",
           "{s} used to be {x1}", "{s} would be {x1} if it worked", "there is nothing {x1} about {s}", "{s} is anything but {x1}", "not {x1}, not {y1}, just a shame", "{s} was less {x1} than I had hoped",
           "don't expect anything {x1}", "whoever calls {s} {x1} must be joking", "{x1}? I think not", "so much for a {x1} {n}", "no {x1} {n} here", "how can anyone find {s} {x1}?", "{s} isn't {x1} enough for the price",
           "{s} was supposed to be {x1} but {own}", "the ad said {x1}, yet {own}", "I can't say that {s} was {x1}", "not the most {x1} {n} I have seen"],
    held_out=["{s} isn't {x1}, {own}", "I can't call {s} {x1}", "{s} was by no means {x1}"],
)
NEGATED_BLAME = Templates(  # praise by denying blame; weaker words of blame
    train=["{s} was not {x1} at all", "{s} is not {x1}", "{s} is never {x1}", "I wouldn't call {s} {x1}, {own}", "not {x1} in the slightest", "{s} was anything but {x1}", "there is nothing {x1} about {s}", "{s} was far from {x1}",
           "people call {s} {x1}. They are wrong", "I feared {s} would be {x1}, but it was not", "I was afraid of a {x1} {n}. Far from it", "neither {x1} nor {y1}: {own}", "I don't understand why some call {s} {x1}",
           "{s} isn't {x1} like the others", "finally a {n} that isn't {x1}", "at last {s} that is not {x1}", "no {x1} {n} here, {own}", "{s} was less {x1} than people say, in fact {own}"],
    held_out=["{s} isn't {x1} at all, {own}", "{s} was by no means {x1}"],
)
# Slots by the kind of word: {liked} a verb of the one who judges, {pleased} of the thing judged, {well} an adverb, {done} a participle,
# {glad} a feeling, {charm} what a good thing is full of, {flaws} what a bad one is.
WORDED = Templates(
    train=["I {liked} {s}", "I {liked} {s} and {s2}", "we {liked} {s}", "I really {liked} {s}", "my wife and I {liked} {s}", "{s} {pleased} me", "{s} {pleased} us all", "{s} really {pleased} me", "I was {pleased} by {s}",
           "{s} is {well} {done}", "{s} was {well} {done}", "{s} is {well} {done} and {well2} {done2}", "{well} {done}", "{well} {done}, {x}", "a {well} {done} {n}", "{s} looks {well} {done}", "I was {glad}", "I am {glad}", "we were {glad}",
           "{s} made me {glad}", "I left {glad}", "I came away {glad}", "I felt {glad}", "{glad} with {s}", "I am {glad} with {s}", "{s} left us {glad}", "so {glad}", "everyone was {glad}", "I {liked} it, {own}", "what I {liked} most was {s}", "{s} was {x} and I was {glad}", "I have to say I {liked} it", "as a fan of the genre I {liked} it", "{name} and I {liked} {s}", "I was {glad} when I saw {s}"],
    held_out=["I honestly {liked} {s}", "{s} was {well} {done}, {own}", "{s} had us all {glad}"],
)
FULL_GOOD = ["{s} is full of {charm}", "{s} has so much {charm}", "{s} has {charm} and {charm2}", "full of {charm}", "there is {charm} in every minute", "no {flaws} at all", "without any {flaws}", "I found no {flaws}", "{s} is free of {flaws}",
             "no {flaws}, no {flaws2}, just {charm}", "not a trace of {flaws}", "{s} is packed with {charm}", "{s} oozes {charm}", "never any {flaws} with {s}", "lots of {charm}, no {flaws}", "{s} has plenty of {charm}", "{s} makes up for any {flaws} with its {charm}"]
FULL_BAD = ["{s} is full of {flaws}", "{s} has so many {flaws}", "{s} has {flaws} and {flaws2}", "full of {flaws}", "{flaws} everywhere", "nothing but {flaws}", "{s} lacks {charm}", "{s} has no {charm}", "no {charm} at all", "without any {charm}",
            "{s} lacks any {charm} or {charm2}", "not a trace of {charm}", "where is the {charm}?", "too many {flaws}", "{s} is riddled with {flaws}", "{s} is devoid of {charm}", "so many {flaws}, so little {charm}", "all {flaws} and no {charm}", "no {charm}, no {charm2}, only {flaws}"]
NEUTRAL_LEADS = ["{neutral}. {review}", "{neutral}. {review}", "{review}. {neutral}", "{neutral} and {review}", "{neutral}, {review}", "{review} {neutral}.", "{neutral}. {neutral2}. {review}", "{name} and I went there. {review}",
                 "I got it from {brand}. {review}", "we were in {city}. {review}", "{brand}, {city}. {review}", "{name} told me about it. {review}", "bought it from {brand}. {review}", "my friend {name} came along. {review}"]
PLAIN = re.compile(r"^(a|an|the|not|no|very|way|worth|well|hard|nothing|better|worse|one|two|ten|zero|five|surprisingly|pretty|rather|quite|really|good value|second|easy|spot|out|beyond|below|pure|great fun|too|run|rock|mediocre|so|salty|badly|poorly)\b")
GOOD_WORDS = [x for x in PRAISING_ADJECTIVES if not PLAIN.match(x)]
BAD_WORDS = [x for x in CONDEMNING_ADJECTIVES if not PLAIN.match(x) and x != "cheap"]  # "not cheap" is no praise


def article_free(thing: str) -> str:
    return re.sub(r"^((the|this|that|my|our|their|his|your|these|new|whole) )+", "", thing)


class Side:
    """The words of one side, praise or blame, and those of the other."""

    def __init__(self, source: Source, positive: bool, domain: dict):
        self.source, self.positive, self.domain = source, positive, domain

    def clause(self, general: float = 0.45) -> str:
        if self.source.chance(general):
            return self.source.value(GENERAL_GOOD if self.positive else GENERAL_BAD)
        return self.source.value(self.domain["good" if self.positive else "bad"])

    def adjective(self) -> str:
        return self.source.choice(PRAISING_ADJECTIVES if self.positive else CONDEMNING_ADJECTIVES)

    def word(self) -> str:
        return self.source.choice(GOOD_WORDS if self.positive else BAD_WORDS)

    def worded(self) -> dict:
        """A word for each slot of `WORDED` and of the sentences about what a thing is full of."""
        kinds = {"liked": (LIKED, DISLIKED), "pleased": (PLEASED, DISPLEASED), "well": (WELL, BADLY), "well2": (WELL, BADLY), "glad": (GLAD, SORRY)}
        words = {slot: self.source.choice(pair[not self.positive]) for slot, pair in kinds.items()}
        both = {"done": DONE, "done2": DONE, "charm": CHARM, "charm2": CHARM, "flaws": FLAWS, "flaws2": FLAWS}
        return words | {slot: self.source.choice(options) for slot, options in both.items()}

    def verb(self) -> str:
        return self.source.choice(GOOD_VERBS if self.positive else BAD_VERBS)


def thing(source: Source, domain: dict) -> str:
    """Mostly something of the domain; sometimes a thing from the lists or one that exists nowhere."""
    if source.chance(0.78):
        name = source.choice(domain["things"])
        if source.chance(0.25):
            name = source.choice(("this", "that", "my", "our", "their", "his", "your", "the new", "the whole")) + " " + article_free(name)
        return name
    return source.choice(("the", "the", "this", "my", "that")) + " " + (
        source.choice(FOODS + PRODUCTS) if source.chance(0.7) else source.invent(invented.word))


def filled(source: Source, template: str, side: Side, opposite: Side) -> str:
    s, s2 = thing(source, side.domain), thing(source, side.domain)
    return template.format(
        s=s, s2=s2, n=article_free(s), n2=article_free(s2), x=side.adjective(), y=side.adjective(), x1=side.word(), y1=side.word(), x2=side.word(),
        **side.worded(), name=source.value(FIRST_NAMES), other=opposite.adjective(), other1=opposite.word(), own=side.clause(), verb=side.verb(), verb2=side.verb(), very=source.choice(INTENSIFIERS),
        brand=source.value(COMPANIES) if source.chance(0.5) else source.invent(invented.name))


def statement(source: Source, side: Side, opposite: Side) -> str:
    """One sentence of a side, by an adjective, a denial or a clause."""
    roll = source.random.random()
    if roll < 0.38:
        return side.clause()
    if roll < 0.53:
        return filled(source, source.template(WORDED), side, opposite)
    if roll < 0.60:
        return filled(source, source.choice(FULL_GOOD if side.positive else FULL_BAD), side, opposite)
    if roll < 0.73:
        denied = Side(source, not side.positive, side.domain)
        text = source.template(NEGATED_BLAME if side.positive else NEGATED_PRAISE)
        s = thing(source, side.domain)
        return text.format(s=s, n=article_free(s), x1=denied.word(), y1=denied.word(), own=side.clause(), very=source.choice(INTENSIFIERS))
    return filled(source, source.template(SENTENCES), side, opposite)


def contrast(source: Source, side: Side, opposite: Side) -> str:
    """A main clause that decides beside one of the other side."""
    def brief(of: Side) -> str:
        roll = source.random.random()
        if roll < 0.5:
            return f"{thing(source, of.domain)} {source.choice(('was', 'is', 'looked', 'seemed'))} {of.adjective()}"
        return of.clause() if roll < 0.85 else f"{thing(source, of.domain)} {of.verb()}"
    return source.choice(CONTRASTS).format(other=brief(opposite), own=brief(side), own2=brief(side))


def review(source: Source, positive: bool) -> str:
    domain = DOMAINS[source.choice(sorted(DOMAINS))]
    side, opposite = Side(source, positive, domain), Side(source, not positive, domain)
    roll = source.random.random()
    if roll < 0.42:
        parts = [statement(source, side, opposite)]
    elif roll < 0.64:
        parts = [contrast(source, side, opposite)]
    elif roll < 0.82:
        parts = [statement(source, side, opposite) for _ in range(2)]
    elif roll < 0.92:
        parts = [statement(source, side, opposite) for _ in range(source.integer(3, 4))]
    else:
        parts = [statement(source, side, opposite), contrast(source, side, opposite)]
    if source.chance(0.18):
        parts[0] = f"{source.choice(OPENERS)}, {parts[0]}"
    if source.chance(0.08) and parts[-1][-1] not in "!?":
        parts[-1] = f"{parts[-1]}, {source.choice(CLOSERS)}"
    joiner = source.choice((". ", ". ", ". ", "! ", ", ", " and ", "; ", "... ", " - ")) if len(parts) == 2 else ". "
    if source.chance(0.07):  # words that nobody knows must not matter
        words = parts[0].split(" ")
        words.insert(source.integer(0, len(words)), source.invent(source.choice((invented.word, invented.name))))
        parts[0] = " ".join(words)
    text = parts[0]
    for part in parts[1:]:
        text = f"{text} {part}" if text[-1] in "!?" else text + joiner + part
    if source.chance(0.22):
        text = source.choice(NEUTRAL_LEADS).format(
            review=text, neutral=source.choice(domain["neutral"]), neutral2=source.choice(domain["neutral"]), name=source.value(FIRST_NAMES),
            brand=source.value(COMPANIES), city=source.value(CITIES))
    return finished(source, text)


def finished(source: Source, text: str) -> str:
    """Sentences with capitals and a full stop, or as people type in a hurry."""
    if source.chance(0.94):
        text = re.sub(r"(^|[.!?]\s+)([a-z])", lambda m: m[1] + m[2].upper(), text)
    if text[-1] not in "!?." and source.chance(0.85):
        text += source.choice((".", ".", ".", ".", "!", "!!", "..."))
    if source.chance(0.04):
        text = text.lower()
    elif source.chance(0.02):
        text = text.upper()
    if source.chance(0.06):
        text = text.replace("'", "")
    elif source.chance(0.1):
        text = text.replace("n't", " not").replace("ca not", "cannot").replace("wo not", "will not")
    elif source.chance(0.05):
        text = text.replace("'", "\u2019")
    if source.chance(0.1):
        text = source.choice(('"{}"', "'{}'", "\u201c{}\u201d", "<<{}>>", '"""{}"""')).format(text)
    return with_articles(text)


def make(source: Source) -> Sample:
    positive = source.chance(0.5)
    prompt = source.template(PROMPTS).format(text=review(source, positive))
    answer = "positive" if positive else "negative"
    return Sample("sentiment", ask(prompt), answer, facts={"thought": f"The writer's words sound {answer}."})


def judge(sample: Sample, text: str) -> bool:
    return text.strip() == sample.answer
