"""Texts about one person or thing, put together from a grammar of clauses: facts in any order, before, after and around the name.

An `Aspect` is one fact and the ways to say it by its place in a sentence. A `Kind` of subject has ways to bring in its
name and the aspects it can have. Sentences that say something else stand between.
"""
from dataclasses import dataclass
from typing import Callable

import invented
from source import Source
from tasks import values as plain
from tasks.english import listing
from tasks.values import either, listed, made, title, whole
from words import more
from words.people import FIRST_NAMES, JOBS, LAST_NAMES
from words.places import CITIES, COUNTRIES, VENUES
from words.things import ANIMALS, COLORS, COMPANIES, FOODS, PRODUCTS


def first_name(source: Source) -> str:
    return source.value(FIRST_NAMES + more.FIRST) if source.chance(0.6) else source.invent(invented.name)


def last_name(source: Source) -> str:
    if source.chance(0.06):
        return f"{source.value(LAST_NAMES + more.LAST)}-{source.value(LAST_NAMES + more.LAST)}"
    return source.value(LAST_NAMES + more.LAST) if source.chance(0.6) else source.invent(invented.name)


def person(source: Source) -> str:
    if source.chance(0.3):
        return first_name(source)
    if source.chance(0.06):
        return f"{first_name(source)} {source.choice('ABCDEFGHJKLMNPRSTVW')}. {last_name(source)}"
    return f"{first_name(source)} {last_name(source)}"


def company(source: Source) -> str:
    name = source.value(COMPANIES) if source.chance(0.4) else source.value(LAST_NAMES + more.LAST) if source.chance(0.4) else source.invent(invented.name)
    return f"{name} {source.choice(more.COMPANY_TAILS)}" if source.chance(0.3) else name


def date(source: Source) -> str:
    r = source.random
    kind = r.randrange(7)
    day, month, year = r.randint(1, 28), r.choice(invented.MONTHS), r.randint(1950, 2035)
    ending = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd"}.get(day, "th")
    return (invented.date(r), invented.date(r), f"{month} {day}, {year}", f"{day} {month}", f"{month} {day}{ending}", f"{day:02}/{r.randint(1, 12):02}/{year}", r.choice(more.WEEKDAYS))[kind]


def clock_time(source: Source) -> str:
    r = source.random
    return (invented.time(r), invented.time(r), f"{r.randint(1, 12)} {r.choice(('am', 'pm'))}", f"{r.randint(1, 12)}:{r.choice(('00', '15', '30', '45'))} {r.choice(('am', 'pm', 'a.m.', 'p.m.'))}", r.choice(("noon", "midnight")))[r.randrange(5)]


def phone(source: Source) -> str:
    r = source.random
    if r.random() < 0.5:
        return source.invent(invented.phone)
    return (f"{r.randint(200, 999)}-{r.randint(200, 999)}-{r.randint(0, 9999):04}", f"({r.randint(200, 999)}) {r.randint(200, 999)}-{r.randint(0, 9999):04}", f"+{r.randint(1, 99)} {r.randint(100, 999)} {r.randint(100000, 999999)}", f"0{r.randint(100, 999)} {r.randint(10000, 999999)}")[r.randrange(4)]


def email(source: Source) -> str:
    """An address of one of several makes."""
    def make(r):
        word, firm = invented.word(r), invented.word(r)
        local = (f"{word}.{invented.word(r)}", f"{word}.{invented.word(r)}", word, f"{word}{r.randint(1, 99)}", f"{word}_{invented.word(r)}", r.choice(("info", "sales", "contact", "office", "support")), f"{word[0]}.{invented.word(r)}", f"{r.choice(FIRST_NAMES + more.FIRST)}.{r.choice(LAST_NAMES)}".lower())[r.randrange(8)]
        return f"{local}@{r.choice((firm, firm, firm, 'example', 'mail', 'web', firm + '-' + invented.word(r)))}.{r.choice(('com', 'com', 'org', 'net', 'io', 'de', 'co.uk', 'edu', 'fr'))}"
    return source.invent(make)


def price(source: Source):
    return source.integer(1, 2000) if source.chance(0.3) else plain.price(source)


def address(source: Source) -> str:
    return f"{source.integer(1, 250)} {source.choice(more.STREETS) if source.chance(0.6) else source.invent(invented.name)} {source.choice(more.STREET_KINDS)}"


city = either(0.65, listed(CITIES + more.CITIES), made(invented.name))
country = either(0.85, listed(COUNTRIES), made(invented.name))
job = either(0.85, listed(JOBS + more.JOBS), made(invented.word))
thing = either(0.8, listed(PRODUCTS + more.PRODUCTS), made(invented.word))
color = either(0.85, listed(COLORS), made(invented.word))


@dataclass(frozen=True)
class Aspect:
    """`verbs` follow the name or a pronoun, `who` a name and "who", `asides` stand between commas behind the name, `before`
    stands in front of it, `alone` are whole sentences (`{n}` is the name, `{p}` he, she, they or it, `{q}` his, her, their, its)."""

    keys: tuple
    kind: str
    value: Callable
    verbs: tuple = ()
    asides: tuple = ()
    before: tuple = ()
    alone: tuple = ()
    money: bool = False


def A(keys, kind, value, verbs="", asides="", before="", alone="", money=False):
    split = lambda text: tuple(part.strip() for part in text.split(";") if part.strip())
    return Aspect(tuple(keys.split()), kind, value, split(verbs), split(asides), split(before), split(alone), money)


AGE = A("age age age years age_years", "integer", whole(1, 99), "is {v} years old; is {v}; turned {v} last week; just turned {v}; is now {v}; has just celebrated {q} birthday number {v}; is {v} years of age; died at {v}; is already {v}",
        "{v}; {v} years old; aged {v}; now {v}; who is {v}; a {v}-year-old; age {v}; only {v}; just {v} years old", "the {v}-year-old; our {v}-year-old; {v}-year-old; at {v}, ; at the age of {v}, ; aged {v}, ", "{Q} age is {v}.; Age {v}.; {P} is {v}.; I think {p} is {v}.")
CITY = A("city city city town location residence hometown lives_in place", "string", city, "lives in {v}; comes from {v}; is from {v}; moved to {v}; was born in {v}; grew up in {v}; is based in {v}; has lived in {v} for years; calls {v} home; settled in {v}; resides in {v}; is at home in {v}; stays in {v} at the moment; rents a flat in {v}",
         "from {v}; living in {v}; based in {v}; of {v}; a resident of {v}; born in {v}; {v}; who lives in {v}; who moved to {v} last year", "in {v}, ; from {v}, ; over in {v}, ", "{Q} home is {v}.; {Q} home town is {v}.; {P} lives in {v}.; Home: {v}.; You can find {n} in {v}.; I visited {n} in {v}.; Greetings from {v}!")
COUNTRY = A("country nationality_country country nation homeland", "string", country, "lives in {v}; comes from {v}; was born in {v}; emigrated to {v}; is a citizen of {v}; grew up in {v}", "from {v}; born in {v}; a citizen of {v}", "from {v}, ", "{Q} country is {v}.; {Q} passport is from {v}.")
JOB = A("job profession occupation job job_title role position work", "string", job, "works as a {v}; is a {v}; earns a living as a {v}; became a {v}; is employed as a {v}; trained as a {v}; has been a {v} for ten years; got a job as a {v}; wants to be a {v}; is a {v} by trade; makes a living as a {v}",
        "a {v}; the {v}; working as a {v}; a {v} by profession; who works as a {v}; our new {v}; an experienced {v}", "the {v}; our {v}; my friend the {v}; as a {v}, ; {v}", "{Q} profession is {v}.; {P} is a {v}.; By profession {p} is a {v}.; Job: {v}.; {Q} business card says {v}.")
COMPANY = A("company employer company firm organization works_at workplace", "string", company, "works at {v}; works for {v}; is employed by {v}; joined {v} last spring; started at {v}; has a job at {v}; runs {v}; left {v} in June; founded {v}; represents {v}", "of {v}; from {v}; who works for {v}; employed at {v}; who joined {v}; the head of {v}; working for {v}",
            "", "{Q} employer is {v}.; {P} works for {v}.; The company is {v}.; {v} hired {n}.; {v} pays {q} salary.")
EMAIL = A("email email e_mail mail email_address contact", "string", email, "can be reached at {v}; uses the address {v}; writes from {v}; has the email {v}; gave us the address {v}", "email {v}; {v}; reachable at {v}; who can be reached at {v}", "", "{Q} email is {v}.; Write to {v}.; Email: {v}.; Mails go to {v}.; Contact: {v}.; Send it to {v}.; {Q} e-mail address is {v}.")
PHONE = A("phone phone_number phone telephone tel number mobile", "string", phone, "can be called at {v}; has the number {v}; answers the phone at {v}; is reachable under {v}; can be reached on {v}", "phone {v}; tel. {v}; reachable at {v}", "", "{Q} phone number is {v}.; Call {v}.; Phone: {v}.; The number is {v}.; Call {n} on {v}.; {Q} number: {v}.; Tel: {v}.")
HOBBY = A("hobby hobby interest pastime favorite_hobby", "string", either(0.9, listed(more.PASTIMES), made(invented.word)), "likes {v}; loves {v}; enjoys {v}; spends {q} weekends with {v}; is fond of {v}; is crazy about {v}; took up {v}", "a fan of {v}; keen on {v}; who loves {v}", "", "{Q} hobby is {v}.; {Q} favourite pastime is {v}.; In {q} free time {p} enjoys {v}.; Hobby: {v}.")
LANGUAGE = A("language language native_language speaks", "string", listed(more.LANGUAGES), "speaks {v}; is fluent in {v}; teaches {v}; learned {v} at school", "who speaks {v}", "", "{Q} language is {v}.; At home they speak {v}.")
SUBJECT = A("subject major field study_field", "string", listed(more.SUBJECTS), "studies {v}; teaches {v}; has a degree in {v}; majored in {v}; is reading {v} at university", "a student of {v}; studying {v}; who studies {v}", "", "{Q} subject is {v}.; {Q} field is {v}.")
DEPARTMENT = A("department department team division", "string", listed(more.DEPARTMENTS), "works in {v}; is in the {v} department; leads the {v} team; moved to {v}", "from {v}; from the {v} department; head of {v}", "", "{Q} department is {v}.; The department is {v}.; Department: {v}.")
SALARY = A("salary income pay wage", "integer", whole(900, 250000), "earns {v}; makes {v} a year; has a salary of {v}; is paid {v}; gets {v} a month", "earning {v}; with a salary of {v}", "", "{Q} salary is {v}.; The pay is {v}.; Salary: {v}.", money=True)
BIRTHDAY = A("birthday birth_date date_of_birth born", "string", date, "was born on {v}; celebrates {q} birthday on {v}; has {q} birthday on {v}", "born on {v}; born {v}", "", "{Q} birthday is {v}.; {Q} date of birth is {v}.; Born: {v}.")
ADDRESS = A("address street address home_address", "string", address, "lives at {v}; has an office at {v}; moved to {v}", "of {v}; living at {v}", "", "{Q} address is {v}.; The address is {v}.; Address: {v}.; Deliver to {v}.")
CHILDREN = A("children number_of_children kids siblings", "integer", whole(1, 9), "has {v} children; raised {v} children; has {v} kids", "with {v} children; a parent of {v}", "", "There are {v} children in the family.")
EXPERIENCE = A("experience years_of_experience experience_years", "integer", whole(2, 40), "has {v} years of experience; has worked there for {v} years; brings {v} years of experience", "with {v} years of experience", "with {v} years of experience, ", "Experience: {v} years.")
COLOR = A("color colour color shade", "string", color, "is {v}; comes in {v}; was painted {v}; has a {v} finish; looks {v}", "in {v}; {v} in color; painted {v}", "", "{Q} color is {v}.; The colour is {v}.; Color: {v}.; I chose {v}.; It has to be {v}.")
PRICE = A("price price cost amount unit_price total", "number", price, "costs {v}; sells for {v}; is on offer at {v}; was sold for {v}; went for {v}; is priced at {v}; can be had for {v}; is yours for {v}; sets you back {v}", "for {v}; at {v}; priced at {v}; which costs {v}; at a price of {v}", "for {v}, ; for just {v}, ", "{Q} price is {v}.; The price is {v}.; Price: {v}.; I paid {v}.; That comes to {v}.; We charged {v}.; They want {v} for it.", money=True)
QUANTITY = A("quantity quantity count amount units stock items", "integer", whole(1, 600), "is in stock {v} times; was ordered {v} times; is available in a quantity of {v}; sold {v} units", "{v} pieces; {v} units; {v} in stock; quantity {v}", "", "We have {v} of them.; {v} are left.; There are {v} in stock.; Quantity: {v}.; I need {v} of them.; Please send {v} pieces.; They ordered {v}.; {v} units were sold.")
BRAND = A("brand manufacturer maker brand company producer", "string", company, "is made by {v}; comes from {v}; is sold by {v}; was built by {v}; is a product of {v}; is from {v}", "by {v}; from {v}; made by {v}; a {v} product; produced by {v}", "", "{Q} maker is {v}.; The brand is {v}.; Brand: {v}.; {v} makes it.; {v} has been making it for years.")
WEIGHT = A("weight weight_kg weight mass", "number", price, "weighs {v} kg; weighs {v} kilos; has a weight of {v} kg; tips the scales at {v} kg", "weighing {v} kg; {v} kg heavy", "", "{Q} weight is {v} kg.; Weight: {v} kg.; The scales say {v} kg.")
MATERIAL = A("material made_of material", "string", listed("wood steel glass leather cotton plastic wool silk oak aluminium ceramic bamboo marble copper linen rubber paper bronze".split()), "is made of {v}; consists of {v}", "made of {v}; in {v}", "", "The material is {v}.; Material: {v}.")
RATING = A("rating stars score rating", "integer", whole(1, 10), "got {v} stars; has a rating of {v}; was rated {v}; scored {v} points", "rated {v}; with {v} stars", "", "The rating is {v}.; I give it {v} stars.; Rating: {v}.")
YEAR = A("year year release_year published year_of_release", "integer", whole(1880, 2030), "came out in {v}; was published in {v}; appeared in {v}; dates from {v}; was released in {v}; is from {v}", "from {v}; published in {v}; {v}; released in {v}", "in {v}, ", "The year was {v}.; It was {v} when it came out.; Year: {v}.; It first appeared in {v}.")
AUTHOR = A("author author writer creator director written_by", "string", person, "was written by {v}; is by {v}; was made by {v}; is the work of {v}; was directed by {v}", "by {v}; a work by {v}; written by {v}", "", "{v} wrote it.; The author is {v}.; Author: {v}.; {v} made it.; {v} is the author.; It was {v} who wrote it.")
GENRE = A("genre genre category type", "string", listed(more.GENRES), "is a {v}; counts as a {v}; belongs to the genre {v}", "a {v}", "the {v}", "The genre is {v}.; Genre: {v}.")
PAGES = A("pages page_count number_of_pages length", "integer", whole(20, 1400), "has {v} pages; runs to {v} pages; is {v} pages long; counts {v} pages", "{v} pages; {v} pages long", "", "There are {v} pages.; Pages: {v}.")
DATE = A("date date day when event_date", "string", date, "is on {v}; takes place on {v}; is planned for {v}; was moved to {v}; happens on {v}; falls on {v}", "on {v}; {v}; planned for {v}", "on {v}, ", "The date is {v}.; Date: {v}.; Keep {v} free.; Be there on {v}.; See you on {v}.; It was set for {v}.")
TIME = A("time start_time time starts_at begins", "string", clock_time, "starts at {v}; begins at {v}; opens at {v}; kicks off at {v}; is due to start at {v}", "at {v}; starting at {v}; from {v}", "at {v}, ", "It starts at {v}.; Time: {v}.; Doors open at {v}.; We begin at {v}.; Be there at {v}.")
PLACE = A("place venue location place where", "string", lambda s: s.value(VENUES) if s.chance(0.5) else city(s), "takes place in {v}; is held in {v}; happens in {v}; was moved to {v}", "in {v}; at {v}", "in {v}, ", "The place is {v}.; Place: {v}.; We meet in {v}.; Venue: {v}.; Come to {v}.")
GUESTS = A("guests attendees participants people guests visitors seats", "integer", whole(2, 900), "has {v} guests; expects {v} visitors; attracts {v} people; welcomes {v} guests; has {v} participants; is for {v} people", "with {v} guests; for {v} people; with {v} participants", "", "{v} people will come.; We expect {v} guests.; There are {v} seats.; {v} people signed up.; Guests: {v}.")
HOST = A("host organizer host organiser contact_person", "string", person, "is hosted by {v}; is organised by {v}; was planned by {v}", "hosted by {v}; organised by {v}", "", "{v} is the host.; The organiser is {v}.; Ask {v} for details.; {v} is in charge.; Host: {v}.")
CUSTOMER = A("customer client buyer customer_name ordered_by", "string", person, "was placed by {v}; belongs to {v}; is for {v}; goes to {v}", "for {v}; placed by {v}; from {v}", "", "The customer is {v}.; {v} ordered it.; {v} is waiting for it.; Customer: {v}.; It was {v} who ordered.; {v} paid for it.")
PRODUCT = A("product item product article", "string", thing, "is for a {v}; contains a {v}; is about a {v}", "a {v}; for a {v}", "", "The product is a {v}.; Product: {v}.; Item: {v}.; It contains a {v}.; I ordered a {v}.")
STATUS = A("status state status order_status", "string", listed("shipped pending cancelled delivered paid open closed processing returned confirmed overdue delayed".split()), "is {v}; is now {v}; was {v} yesterday; has been {v}", "{v}; now {v}; already {v}", "", "The status is {v}.; Status: {v}.; It is {v}.")
SPECIES = A("species animal species kind type", "string", either(0.85, listed(ANIMALS), made(invented.word)), "is a {v}; is our {v}; is a lively {v}; is a young {v}", "a {v}; our {v}; the {v}", "the {v}; our {v}; my {v}", "{P} is a {v}.; Animal: {v}.")
OWNER = A("owner owner keeper human owner_name", "string", person, "belongs to {v}; lives with {v}; is owned by {v}; was adopted by {v}", "owned by {v}; who belongs to {v}; {v}'s favourite", "", "{v} is the owner.; Owner: {v}.; {v} brought {n} in.; The owner is called {v}.")
CAPITAL = A("capital capital_city capital", "string", city, "has the capital {v}; is governed from {v}; is ruled from {v}", "with the capital {v}; capital {v}", "", "The capital is {v}.; {v} is its capital.; Capital: {v}.")
POPULATION = A("population inhabitants population people", "integer", whole(900, 99999999), "has {v} inhabitants; has a population of {v}; is home to {v} people; counts {v} people", "with {v} inhabitants; population {v}; home to {v} people", "with {v} inhabitants, ", "{v} people live there.; The population is {v}.; Population: {v}.")
FROM = A("from origin departure from departure_city start", "string", city, "leaves from {v}; departs from {v}; starts in {v}; takes off in {v}", "from {v}; out of {v}", "from {v}, ", "It starts in {v}.; Departure: {v}.; We leave from {v}.")
TO = A("to destination arrival to destination_city goal", "string", city, "goes to {v}; flies to {v}; arrives in {v}; is bound for {v}; lands in {v}; ends in {v}", "to {v}; bound for {v}", "", "The destination is {v}.; It ends in {v}.; Destination: {v}.; We are going to {v}.")
ROOMS = A("rooms bedrooms number_of_rooms", "integer", whole(1, 12), "has {v} rooms; comes with {v} rooms; offers {v} rooms", "with {v} rooms; {v} rooms", "with {v} rooms, ", "There are {v} rooms.; Rooms: {v}.")
AREA = A("area size square_meters area_sqm", "integer", whole(20, 900), "has {v} square meters; covers {v} square meters; measures {v} square meters", "{v} square meters; {v} square meters large", "", "Area: {v} square meters.; {v} square meters in all.")
FOUNDED = A("founded founded_year year established", "integer", whole(1800, 2029), "was founded in {v}; was started in {v}; has existed since {v}; opened in {v}", "founded in {v}; established in {v}", "founded in {v}, ", "It all began in {v}.; Founded: {v}.; {v} was the year it began.")
EMPLOYEES = A("employees staff number_of_employees headcount", "integer", whole(2, 90000), "has {v} employees; employs {v} people; counts {v} employees; gives work to {v} people", "with {v} employees; employing {v} people", "with {v} employees, ", "{v} people work there.; Employees: {v}.")
CEO = A("ceo founder boss director ceo head", "string", person, "is led by {v}; is run by {v}; was founded by {v}; is headed by {v}", "led by {v}; run by {v}; headed by {v}", "", "{v} is the boss.; {v} leads the company.; The head is {v}.; CEO: {v}.")
INDUSTRY = A("industry sector industry business", "string", listed("banking farming insurance retail tourism mining logistics robotics fashion education healthcare software energy construction transport publishing gaming brewing".split()), "is in {v}; is active in {v}; does business in {v}", "active in {v}", "", "The industry is {v}.; Industry: {v}.; Its business is {v}.")
MINUTES = A("minutes cooking_time time_minutes duration duration_minutes", "integer", whole(5, 240), "takes {v} minutes; is ready in {v} minutes; needs {v} minutes; lasts {v} minutes", "ready in {v} minutes; {v} minutes long", "in {v} minutes, ", "It takes {v} minutes.; Time: {v} minutes.")
SERVINGS = A("servings serves portions people", "integer", whole(1, 12), "serves {v}; is enough for {v} people; makes {v} portions; feeds {v}", "for {v} people; enough for {v}", "", "Servings: {v}.; It is enough for {v}.")
NUMBER = A("number id order_number reference code id", "string", made(invented.code), "has the number {v}; is registered under {v}; carries the code {v}; is filed as {v}", "number {v}; no. {v}; reference {v}", "", "The number is {v}.; Reference: {v}.; Its code is {v}.; ID: {v}.")

HOBBIES = A("hobbies interests hobbies likes", "strings", plain.several(listed(more.PASTIMES)), "likes {v}; loves {v}; enjoys {v}; is into {v}; spends {q} free time on {v}", "a fan of {v}", "", "{Q} hobbies are {v}.; Hobbies: {v}.; {Q} interests: {v}.")
LANGUAGES = A("languages spoken_languages languages", "strings", plain.several(listed(more.LANGUAGES)), "speaks {v}; is fluent in {v}; knows {v}", "who speaks {v}", "", "{Q} languages are {v}.; Languages: {v}.")
INGREDIENTS = A("ingredients ingredients items", "strings", plain.several(plain.word_or(FOODS)), "needs {v}; is made with {v}; contains {v}; is made from {v}", "with {v}", "", "You need {v}.; Ingredients: {v}.; Take {v}.; The ingredients are {v}.")
GENRES = A("genres tags genres", "strings", plain.several(listed(more.GENRES)), "mixes {v}; is a blend of {v}", "", "", "The genres are {v}.; Genres: {v}.; Tags: {v}.")

PEOPLE_KEYS = "name name name name full_name person person_name"
# kind: (keys of the name, values of the name, whether it is a person, ways to bring it in, aspects). An introduction is a whole sentence
# or ends in the name, so that asides and clauses can follow.
KINDS = {
    "person": (PEOPLE_KEYS, person, True,
               ["{n}", "{n}", "{n}", "{n}", "{n}", "My friend {n}", "Our neighbour {n}", "My colleague {n}", "Meet {n}", "This is {n}", "I met {n}", "Yesterday I talked to {n}", "Let me introduce {n}", "The winner is {n}", "My name is {n}", "I am {n}", "We hired {n}",
                "Please welcome {n}", "Her brother {n}", "Have you heard of {n}", "A letter came from {n}", "We interviewed {n}", "Our guest today was {n}", "The police are looking for {n}", "There is a new student called {n}", "She is called {n}", "His name is {n}", "A man named {n}",
                "A woman called {n}", "I got a call from {n}", "The patient is {n}", "My cousin {n}", "Dr. Smith spoke to {n}", "The applicant, {n}"],
               [AGE, AGE, AGE, AGE, CITY, CITY, CITY, JOB, JOB, JOB, COMPANY, COMPANY, EMAIL, PHONE, HOBBY, COUNTRY, LANGUAGE, SUBJECT, DEPARTMENT, SALARY, BIRTHDAY, ADDRESS, CHILDREN, EXPERIENCE, HOBBIES, LANGUAGES]),
    "product": ("product name item product article product_name", thing, False,
                ["The {n}", "The {n}", "The {n}", "Our new {n}", "This {n}", "I bought a {n}", "We sell a {n}", "For sale: a {n}", "A {n}", "I would like to order a {n}", "On Monday we got a {n}", "He was looking at a {n}", "I am selling my {n}", "New in the shop: the {n}"],
                [PRICE, PRICE, PRICE, COLOR, COLOR, BRAND, BRAND, QUANTITY, QUANTITY, WEIGHT, MATERIAL, RATING, NUMBER]),
    "book": ("title title name book", title, False,
             ["{n}", "{n}", "The book {n}", "The film {n}", "I am reading {n}", "Last night we watched {n}", "My favourite is {n}", "The novel {n}", "I borrowed {n}", "You should try {n}", "The library has {n}"],
             [AUTHOR, AUTHOR, YEAR, YEAR, GENRE, PAGES, PRICE, RATING, LANGUAGE, GENRES]),
    "event": ("event name title event event_name", title, False,
              ["{n}", "{n}", "The festival {n}", "You are invited to {n}", "The meeting {n}", "Don't miss {n}", "We are planning {n}", "The conference {n}", "Join us for {n}", "The workshop {n}"],
              [DATE, DATE, DATE, TIME, TIME, PLACE, PLACE, GUESTS, HOST, PRICE]),
    "order": ("order order_id id order_number", made(invented.code), False,
              ["Order {n}", "Order {n}", "Order number {n}", "The order {n}", "Your order {n}", "The invoice {n}", "The parcel {n}", "I am asking about order {n}", "We got order {n}"],
              [CUSTOMER, CUSTOMER, PRODUCT, PRODUCT, PRICE, PRICE, QUANTITY, STATUS, STATUS, DATE, ADDRESS]),
    "pet": ("name name pet pet_name", first_name, True,
            ["{n}", "{n}", "{n}", "This is {n}", "We adopted {n}", "Our patient {n}", "I have a pet named {n}", "The vet saw {n}", "Have you seen {n}"], [SPECIES, SPECIES, AGE, COLOR, OWNER, WEIGHT]),
    "place": ("country name place country", country, False, ["{n}", "{n}", "{n}", "We travelled to {n}", "The country {n}", "I want to see {n}", "A state called {n}"], [CAPITAL, CAPITAL, POPULATION, LANGUAGE]),
    "flight": ("flight flight_number number train code", made(invented.code), False, ["Flight {n}", "Flight {n}", "The train {n}", "The bus {n}", "I booked flight {n}", "We take the train {n}"], [FROM, FROM, TO, TO, DATE, TIME, PRICE, GUESTS]),
    "company": ("company name company_name firm", company, False, ["{n}", "{n}", "{n}", "The company {n}", "I applied at {n}", "My father works for {n}", "The start-up {n}"], [CITY, FOUNDED, FOUNDED, EMPLOYEES, EMPLOYEES, CEO, CEO, INDUSTRY, PHONE, EMAIL]),
    "house": ("address street address", address, False, ["{n}", "The flat at {n}", "The house at {n}", "For rent: {n}", "We looked at {n}"], [ROOMS, ROOMS, AREA, AREA, PRICE, CITY, OWNER]),
    "recipe": ("dish name recipe dish", lambda s: f"{s.choice(FOODS) if s.chance(0.7) else s.invent(invented.word)} {s.choice(('soup', 'cake', 'pie', 'salad', 'curry', 'stew', 'bread', 'pasta', 'tart'))}", False,
               ["The {n}", "My {n}", "Grandma's {n}", "Today we cook a {n}", "The recipe for {n}"], [INGREDIENTS, INGREDIENTS, MINUTES, MINUTES, SERVINGS, SERVINGS, PRICE, RATING]),
}

FILLERS = ["It was raining all day.", "The meeting lasted for two hours.", "I had almost forgotten to write.", "More about that later.", "Thank you for your message.", "We were all a little tired.", "I hope this helps.", "That is all I know.", "The weather was fine.",
           "There was a long queue.", "Nobody knows why.", "As you know, we are still looking.", "You may remember.", "I was surprised.", "Please let me know.", "The rest is not important.", "We had coffee together.", "It has been a long week.", "Have a nice day.", "Best regards.",
           "Some people have all the luck.", "It is a nice story.", "I wrote it all down.", "Many thanks!", "This happened last summer.", "Hello everyone.", "Good news!", "Just a short note.", "Here is what I know.", "For your records.", "Hi team,", "Dear all,", "As discussed:"]
OTHERS = ["{o} was there as well.", "{o} is an old friend.", "{o} told me so.", "I also saw {o}.", "Later {o} called.", "{o} sends greetings.", "We took the bus number {k}.", "It took us {k} minutes.", "I asked {k} people.", "{o} disagreed.", "Say hello to {o}.",
          "We first met in {c}.", "Last year I was in {c}.", "The shop in {c} was closed."]


def spoken(source: Source, aspect: Aspect, value) -> str:
    if isinstance(value, list):
        return listing(value) if source.chance(0.8) else ", ".join(value)
    if isinstance(value, int) and value >= 1000 and "year" not in " ".join(aspect.keys) and source.chance(0.25):
        return f"{value:,}"
    if aspect.kind == "number" or aspect.money:
        text = f"{value:.2f}" if isinstance(value, float) and aspect.money and source.chance(0.6) else str(value)
        if not aspect.money:
            return text
        return source.choice(("{}", "{}", "${}", "€{}", "£{}", "{} euros", "{} dollars", "{} EUR", "$ {}", "{} pounds")).format(text)
    return str(value)


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def portrait(source: Source) -> tuple[str, list]:
    """A text, and the facts in it: `(keys, kind, value)` of each."""
    kind = source.random.choices(sorted(KINDS), [{"person": 14, "product": 5}.get(kind, 2) for kind in sorted(KINDS)])[0]
    name_keys, name_value, is_person, intros, aspects = KINDS[kind]
    name = name_value(source)
    chosen = []
    for aspect in source.sample(aspects, len(aspects)):
        if aspect not in chosen:
            chosen.append(aspect)
    chosen = chosen[:source.choice((1, 2, 2, 3, 3, 3, 4, 4, 5))]
    facts = [(tuple(name_keys.split()), "string", name)]
    values = []
    for aspect in chosen:
        value = aspect.value(source)
        values.append((aspect, value))
        facts.append((aspect.keys, aspect.kind, value))
    p, q = source.choice((("he", "his"), ("she", "her"))) if is_person else ("it", "its")
    if source.chance(0.12):
        return labelled(source, name_keys.split()[0], name, values), facts

    def say(form: str, aspect: Aspect, value) -> str:
        return form.format(v=spoken(source, aspect, value), n=name, p=p, q=q, P=capital(p), Q=capital(q))

    intro = source.choice(intros).format(n=name)
    sentences, rest = [], list(values)
    front, asides, verbs = "", [], []
    if source.chance(0.25):
        able = [pair for pair in rest if pair[0].before]
        if able:
            pair = source.choice(able)
            form = source.choice(pair[0].before)
            rest.remove(pair)
            if form.endswith(","):
                front = say(form, *pair) + " "
                if intro.split()[0] in ("My", "Our", "The", "This", "A", "Your", "We", "Her") and " " in intro:
                    intro = intro[0].lower() + intro[1:]
            else:
                front, intro = say(form, *pair) + " ", name
    for pair in list(rest):
        roll = source.random.random()
        if roll < 0.27 and pair[0].asides and len(asides) < 2:
            asides.append(say(source.choice(pair[0].asides), *pair))
        elif roll < 0.6 and pair[0].verbs and len(verbs) < 3:
            verbs.append(say(source.choice(pair[0].verbs), *pair))
        else:
            continue
        rest.remove(pair)
    subject_first = intro == name or " " in intro and capital(intro).split()[0] in ("My", "Our", "The", "Your", "Order", "Flight", "This", "Her", "A", "Grandma's") and not capital(intro).startswith(("My name", "The winner", "This is", "The police", "The patient is", "My favourite", "My father", "The vet", "The library"))
    text = front + (intro if not front or front.endswith(", ") else name)
    whole = text
    if asides:
        if len(asides) == 1 and source.chance(0.25):
            whole += f" ({asides[0]})"
        else:
            whole += ", " + (", ".join(asides) if source.chance(0.7) else " and ".join(asides))
            if verbs and subject_first:
                whole += ","
    if not subject_first or not verbs:
        if subject_first and not asides:
            if rest and rest[0][0].verbs:
                pair = rest.pop(0)
                whole += " " + say(source.choice(pair[0].verbs), *pair)
            else:
                whole += source.choice((" is on my list", " came up today", " was in the news", " is the one I mean", " wrote to us", " is new here")) if is_person else source.choice((" is on my list", " came up today", " is the one I mean", " is new here"))
        sentences.append(whole + ("?" if whole.startswith("Have you") else "."))
        if verbs:
            if source.chance(0.5):
                sentences.append(f"{source.choice((capital(p), capital(p), name))} {strung(source, verbs)}.")
            else:
                sentences += [f"{source.choice((capital(p), capital(p), name))} {verb}." for verb in verbs]
    else:
        sentences.append(f"{whole} {strung(source, verbs)}.")
    for pair in source.sample(rest, len(rest)):
        forms = [form for form in pair[0].alone] + [f"{{P}} {verb}." for verb in pair[0].verbs[:4]]
        sentence = capital(say(source.choice(forms), *pair))
        if source.chance(0.12):
            sentences.insert(0, sentence)
        else:
            sentences.append(sentence)
    if source.chance(0.2):
        sentences.insert(source.integer(0, len(sentences)), source.choice(FILLERS))
    if source.chance(0.16):
        sentences.insert(source.integer(1, len(sentences)), source.choice(OTHERS).format(o=first_name(source), k=source.integer(2, 90), c=city(source)))
    text = (" " if source.chance(0.95) else "\n").join(capital(sentence) for sentence in sentences)
    if source.chance(0.03):
        text = text.lower() if all(not isinstance(v, str) or v.islower() for _, _, v in facts) else text
    return text, facts


def strung(source: Source, verbs: list) -> str:
    if len(verbs) == 1:
        return verbs[0]
    return ", ".join(verbs[:-1]) + source.choice((" and ", " and ", ", and ", " but ")) + verbs[-1]


def labelled(source: Source, name_key: str, name: str, values: list) -> str:
    """A record with or without labels."""
    pairs = [(name_key, name)] + [(source.choice(aspect.keys), spoken(source, aspect, value)) for aspect, value in values]
    if source.chance(0.5):
        pairs = source.sample(pairs, len(pairs))
    if source.chance(0.3):
        return source.choice((", ", " | ", "; ", " - ", " / ", "\n")).join(value for _, value in pairs)
    style = source.choice((str, str.capitalize, str.upper, lambda key: key.replace("_", " ").capitalize(), lambda key: key.replace("_", " ")))
    joiner, separator = source.choice(((": ", "\n"), (": ", ", "), (" = ", "\n"), ("=", "; "), (" - ", "\n"), (": ", " | "), (": ", "; "), (": ", ". ")))
    return separator.join(f"{style(key)}{joiner}{value}" for key, value in pairs)
