"""E-mail: an address made of a name and a company, in lower case."""
import invented
from sample import Sample, ask
from source import Source, Templates
from words.people import FIRST_NAMES, LAST_NAMES
from words.things import COMPANIES

PROMPTS = Templates(
    train=[
        "Generate an email address for {name}, who works in {company}. End in .{tld} and new line.",
        "Generate an email address for {name}, who works in {company}. End in .{tld}.",
        "Generate an e-mail address for {name} of {company}. It ends in .{tld}.",
        "{name} works at {company}. Write an email address that ends in .{tld}.",
        "What could be the email address of {name} at {company}? Use .{tld}.",
        "Make up an e-mail address for {name} from {company}, ending in .{tld}.",
        "Write the .{tld} e-mail address of {name}, an employee of {company}.",
        "Name: {name}\nCompany: {company}\nEnding: .{tld}\nEmail:",
        "Create an email for {name} ({company}) that ends in .{tld}.",
        "I need an email address for {name}. The company is {company}, the ending .{tld}.",
        "Create an address for {name} of {company}, ending in .{tld}.",
        "{name} is employed by {company}. What is the .{tld} email address?",
        "Write the email of {name}, who works for {company}. Ending .{tld}.",
        "Give me a .{tld} email for {name} at {company}.",
        "Generate an email: {name}, {company}, .{tld}",
    ],
    held_out=[
        "Create an email address for {name}, who works at {company}. End in .{tld}.",
        "{name} is an employee of {company}. Generate an email address that ends in .{tld}.",
        "Write an email address for {name} from {company}. Ending: .{tld}.",
    ],
)
PLAIN_PROMPTS = Templates(
    train=[
        "Generate an email address for {name}, who works in {company}.",
        "{name} works at {company}. Write an email address.",
        "Make up an e-mail address for {name} from {company}.",
        "Email address of {name} at {company}?",
        "Create an email for {name} of {company}.",
        "Write the e-mail address of {name}, who works for {company}.",
        "Give me an email address for {name} at {company}.",
        "{name} is employed by {company}. Generate an address.",
        "Generate an e-mail address: {name}, {company}",
    ],
    held_out=["Create an email address for {name}, who works at {company}.", "Write an e-mail address for {name} from {company}."],
)


def make(source: Source) -> Sample:
    def part(values):
        return source.invent(invented.name) if source.chance(0.5) else source.value(values)

    first, last, company = part(FIRST_NAMES), part(LAST_NAMES), part(COMPANIES)
    plain = source.chance(0.25)
    tld = "com" if plain else source.choice(["com", "com", "com", "org", "net", "io", "de"])
    prompt = source.template(PLAIN_PROMPTS if plain else PROMPTS).format(name=f"{first} {last}", company=company, tld=tld)
    answer = f"{first}.{last}@{company}.{tld}".lower()
    if not plain and source.chance(0.25):
        prompt += " Example result: alan.turing@enigma.com"
    return Sample("email", ask(prompt), answer, lowered=[first, last, company],
                  facts={"thought": "First name, dot, last name, then the company."})


def judge(sample: Sample, text: str) -> bool:
    return text.strip() == sample.answer
