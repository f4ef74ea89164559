"""E-mail: an address made of a name and a company, in lower case."""
import invented
from sample import Sample, ask
from source import Source, Templates
from words import more
from words.people import FIRST_NAMES, LAST_NAMES
from words.things import COMPANIES

ASCII_LAST = [name for name in more.LAST if name.isalpha()]

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


# Parts of which training's own prompts are put together; {n} is the name, {c} the company, {t} the ending.
ORDERS = ["Generate an email address for {n}", "Create an email address for {n}", "Write an email address for {n}", "Make an email address for {n}", "Give me an email address for {n}", "Suggest an email address for {n}", "Make up an e-mail address for {n}", "I need an email address for {n}",
          "What would be the email address of {n}", "What is the work email of {n}", "Build the email address of {n}", "Please create a company email for {n}", "Generate the email of {n}", "Compose a work e-mail address for {n}", "Set up an email address for {n}", "Give {n} an email address", "Invent an email address for {n}",
          "Produce a business email address for {n}", "Generate an e-mail for {n}", "Write the address for {n}", "Come up with an email address for {n}", "Guess the email address of {n}", "Can you make an email for {n}", "Please generate an email address for {n}", "Generate a corporate email for {n}", "Form an email address for {n}"]
WORKS = [", who works in {c}", ", who works at {c}", ", who works for {c}", " at {c}", " from {c}", " of {c}", ", an employee of {c}", " ({c})", ", employed at {c}", " who is with {c}", ", company {c}", " at the company {c}", ", who has just joined {c}", ". Company: {c}", ", a new colleague at {c}", " working at {c}", ", who is a manager at {c}",
         ", the new intern of {c}", ". The company is {c}", ", CEO of {c}", ", head of sales at {c}", " with the company {c}", ", a developer at {c}", ", engineer at {c}", ", our contact at {c}"]
FACTS = ["{n} works at {c}", "{n} works for {c}", "{n} is employed by {c}", "{n} joined {c}", "{n} is an engineer at {c}", "{n} starts at {c} on Monday", "My colleague {n} works at {c}", "A new employee, {n}, starts at {c}", "At {c} there is a new manager called {n}", "{c} hired {n}", "{c} has a new employee: {n}", "{n} is the director of {c}", "Employee: {n}, company: {c}",
         "Name: {n}, Company: {c}", "First and last name: {n}. Firm: {c}", "{n} from {c} needs an address", "{n}, {c}", "{n} is a nurse at {c}", "{n} runs {c}", "Person: {n}\nEmployer: {c}"]
ASK = ["What is the email address?", "What is the email?", "Write the email address.", "Generate an email address.", "Create the work email.", "What would the email address be?", "Give the e-mail address.", "Email?", "Make an email address for this person.", "Write an address in the form first.last@company.{t}.", "Email address:", "Please create an email address.", "Generate the company email address."]
ENDINGS = [". End in .{t} and new line.", ". End in .{t}.", ". It ends in .{t}.", ". Use .{t}.", ", ending in .{t}.", " that ends in .{t}.", ". Ending: .{t}", ". The domain ends in .{t}.", " (.{t})", ". Use the form first.last@company.{t}", ". Format: firstname.lastname@company.{t}.", " in the format first.last@company.{t}", " with .{t} at the end.", ". The ending should be .{t}.", ". End with .{t}"]


def composed(source: Source, name: str, company: str, tld: str | None) -> str:
    if source.chance(0.65):
        text = source.choice(ORDERS) + source.choice(WORKS)
        text += source.choice(ENDINGS) if tld else source.choice((".", ".", "", "?", ". Use first.last@company.com.", ". Format: first.last@company.com", " in the form first.last@company.com"))
    else:
        text = source.choice(FACTS) + source.choice((". ", ".\n", "\n", ": ")) + source.choice(ASK)
        if tld and ".{t}" not in text:
            text += source.choice((" It ends in .{t}.", " Ending .{t}.", " Use .{t}.", " End in .{t}.", " The ending is .{t}."))
    return text.format(n=name, c=company, t=tld or "com")


def make(source: Source) -> Sample:
    def part(values):
        return source.invent(invented.name) if source.chance(0.5) else source.value(values)

    first, last, company = part(FIRST_NAMES + more.FIRST), part(LAST_NAMES + ASCII_LAST), part(COMPANIES + LAST_NAMES)
    parts = [company]
    if not source.held_out and source.chance(0.1):  # two words become one
        parts.append(part(COMPANIES))
        company = " ".join(parts)
    plain = source.chance(0.35)
    tld = "com" if plain else source.choice(["com", "com", "com", "org", "net", "io", "de"])
    if source.held_out_templates or source.chance(0.35):
        prompt = source.template(PLAIN_PROMPTS if plain else PROMPTS).format(name=f"{first} {last}", company=company, tld=tld)
    else:
        prompt = composed(source, f"{first} {last}", company, None if plain else tld)
    answer = f"{first}.{last}@{''.join(parts)}.{tld}".lower()
    if not plain and source.chance(0.25):
        prompt += " Example result: alan.turing@enigma.com"
    return Sample("email", ask(prompt), answer, lowered=[first, last, *parts],
                  facts={"thought": "First name, dot, last name, then the company."})


def judge(sample: Sample, text: str) -> bool:
    return text.strip() == sample.answer
