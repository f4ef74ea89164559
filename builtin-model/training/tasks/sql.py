"""SQL: a table and a question in, one `SELECT` statement out.

Wordings are literal enough that one statement is right: the columns named, in the order named, and the
condition, order and limit that the question states.
"""
import invented
from sample import Sample, ask
from source import Source, Templates
from tasks.english import listing
from words import more
from words.people import FIRST_NAMES, JOBS
from words.places import CITIES, COUNTRIES
from words.things import COLORS, COMPANIES, PRODUCTS

STATES = "shipped pending cancelled delivered paid open closed active inactive new returned draft sold blocked".split()

TABLES = {
    "users": "id username email age city country created_at active name score",
    "customers": "id name city country phone email balance joined",
    "orders": "id customer product quantity price status date total",
    "products": "id name price color stock category weight brand",
    "employees": "id name salary department city age manager hired",
    "books": "id title author year pages price genre language",
    "cars": "id brand model year color price mileage owner",
    "students": "id name grade school age city teacher score",
    "movies": "id title director year rating length genre",
    "cities": "id name country population area mayor",
    "flights": "id origin destination price date seats airline",
    "songs": "id title artist album length year plays",
    "teams": "id name city coach wins losses points",
    "invoices": "id number customer amount due_date paid currency",
    "sensors": "id name location temperature humidity status",
    "events": "id title date place visitors price",
    "animals": "id name species age weight owner",
    "houses": "id city street price rooms area year",
    "players": "id name team age goals country salary",
    "tickets": "id title status priority customer created_at",
    "rooms": "id number floor price beds status",
    "courses": "id title teacher credits language semester",
    "hotels": "id name city stars price rooms rating",
    "patients": "id name age city doctor diagnosis",
    "payments": "id customer amount date method status",
    "suppliers": "id name country city phone rating",
    "reviews": "id product rating author date language",
    "restaurants": "id name city cuisine rating price",
    "accounts": "id owner balance currency status opened",
    "messages": "id sender receiver subject date read",
    "projects": "id name manager budget status deadline",
    "recipes": "id name minutes servings difficulty calories",
    "items": "id name price quantity category",
}

PLAIN = Templates(
    train=[
        "Generate an SQL query to show the {quoted} from the {table} table.",
        "Show {columns} from {table}.",
        "Write an SQL query that selects {columns} from the table {table}.",
        "SQL: {columns} of all {table}.",
        "Get {columns} out of the {table} table with SQL.",
        "Select {quoted} from '{table}'.",
        "Write SQL to show {columns} of the table {table}.",
        "Write a query to get {quoted} from {table}.",
        "Generate SQL for {quoted} in the {table} table.",
        "List {columns} of {table} with an SQL query.",
    ],
    held_out=["Generate an SQL query that shows {columns} from the {table} table.", "Write SQL to get {quoted} from the table {table}."],
)
FILTERED = Templates(
    train=[
        "{schema}\nShow {columns} where {condition}.",
        "{schema}\nQuestion: Which {columns} have {condition}?",
        "Given the table {schema}, write SQL for: {columns} where {condition}.",
        "Table: {schema}\nSelect {columns} of rows where {condition}.",
        "{schema}\nGive me {columns} if {condition}.",
        "Write one SELECT statement. {schema} Get {columns} where {condition}.",
        "Table {schema}. I want {columns} of all {table} with {condition}.",
        "Generate an SQL query to show {columns} from the {table} table where {condition}.",
        "{schema}\nQuestion: show {columns} where {condition}",
        "{schema}\nWrite SQL for {columns} of {table} where {condition}.",
        "Select {columns} where {condition}. Table {schema}",
        "Given the table {schema}\nQuestion: {columns} if {condition}?",
    ],
    held_out=[
        "Table {schema}\nQuestion: {columns} of the {table} where {condition}.",
        "{schema}\nWrite an SQL query that shows {columns} where {condition}.",
        "Given {schema}, select {columns} where {condition}.",
    ],
)
COUNTED = Templates(
    train=["{schema}\nHow many {table} are there where {condition}?", "{schema}\nCount the rows where {condition}.",
           "Table: {schema}\nQuestion: How many {table} have {condition}?", "SQL for the number of {table} where {condition}. {schema}",
        "{schema}\nHow many {table} have {condition}?",
        "Given {schema}, count the {table} with {condition}.",
        "Table {schema}\nQuestion: number of rows where {condition}?",
        "{schema}\nCount all {table} where {condition}."],
    held_out=["Table {schema}\nHow many rows have {condition}?", "{schema}\nWrite SQL: count the {table} where {condition}."],
)
ORDERED = Templates(
    train=["{schema}\nShow {columns} sorted by {key}{direction}.", "{schema}\nList {columns} ordered by {key}{direction}.",
           "Table: {schema}\nSelect {columns}, sort by {key}{direction}.", "{schema}\nWrite SQL for {columns} in order of {key}{direction}.",
        "Given {schema}, show {columns} ordered by {key}{direction}.",
        "Table {schema}\nQuestion: {columns} sorted by {key}{direction}?",
        "{schema}\nI want {columns} of all {table}, ordered by {key}{direction}."],
    held_out=["Table {schema}\nQuestion: {columns} of all rows ordered by {key}{direction}.",
              "{schema}\nSelect {columns} sorted by {key}{direction}."],
)
AGGREGATED = Templates(
    train=["{schema}\nWhat is the {word} {column}?", "{schema}\nCompute the {word} {column} of all {table}.",
           "Table: {schema}\nQuestion: the {word} of {column}?", "Write SQL for the {word} {column}. {schema}",
        "Given {schema}, what is the {word} of {column}?",
        "Table {schema}\nQuestion: {word} {column}?",
        "{schema}\nTell me the {word} {column}.",
        "{schema}\nGive me the {word} of {column}."],
    held_out=["Table {schema}\nGive me the {word} {column} of the {table}.", "{schema}\nQuestion: What is the {word} {column} of all {table}?"],
)
AGGREGATES = {"average": "AVG", "mean": "AVG", "highest": "MAX", "maximum": "MAX", "largest": "MAX", "lowest": "MIN",
              "minimum": "MIN", "smallest": "MIN", "total": "SUM", "sum": "SUM"}
# More ways to compare, for training's own questions; {c} is the column, {v} the value.
NUMBER_TESTS = {
    "=": ["{c} is {v}", "{c} equals {v}", "{c} = {v}", "{c} of {v}", "{c} is equal to {v}", "{c} is exactly {v}", "a {c} of {v}", "{c} equal to {v}"],
    ">": ["{c} is greater than {v}", "{c} is more than {v}", "{c} is over {v}", "{c} > {v}", "{c} is above {v}", "{c} above {v}", "{c} over {v}", "{c} greater than {v}", "{c} is higher than {v}", "{c} exceeds {v}", "{c} is larger than {v}", "more than {v} {c}", "a {c} over {v}", "{c} higher than {v}", "a {c} greater than {v}", "{c} bigger than {v}", "{c} more than {v}"],
    "<": ["{c} is less than {v}", "{c} is under {v}", "{c} is below {v}", "{c} < {v}", "{c} below {v}", "{c} under {v}", "{c} less than {v}", "{c} is lower than {v}", "{c} is smaller than {v}", "less than {v} {c}", "a {c} under {v}", "{c} lower than {v}", "a {c} below {v}", "fewer than {v} {c}", "{c} smaller than {v}"],
    ">=": ["{c} is at least {v}", "{c} at least {v}", "{c} >= {v}", "{c} is {v} or more", "{c} of {v} or more", "{c} is greater than or equal to {v}", "at least {v} {c}", "{c} of at least {v}", "{c} is not less than {v}", "{c} is {v} or higher", "a {c} of at least {v}", "{c} greater than or equal to {v}"],
    "<=": ["{c} is at most {v}", "{c} at most {v}", "{c} <= {v}", "{c} is {v} or less", "{c} of {v} or less", "{c} is less than or equal to {v}", "at most {v} {c}", "{c} of at most {v}", "{c} is not more than {v}", "{c} is {v} or lower", "{c} up to {v}", "{c} less than or equal to {v}", "{c} is no more than {v}"],
    "!=": ["{c} is not {v}", "{c} != {v}", "{c} is different from {v}", "{c} other than {v}", "{c} is not equal to {v}"],
}
TEXT_TESTS = {
    "=": ["{c} is {v}", "{c} is {v}", "{c} equals {v}", "{c} = {q}", "{c} is {q}", "{c} {q}", "{c} {v}", "{c} equal to {q}", "{c} is equal to {q}", "the {c} {v}", "the {c} {q}", "{c} matches {q}"],
    "!=": ["{c} is not {v}", "{c} is not {q}", "{c} != {q}", "{c} other than {q}", "{c} is different from {q}"],
}
# What people say of a column without its name: column, comparison, words behind "who are" or "that are" and the like.
IDIOMS = [("age", ">", "older than {v}"), ("age", "<", "younger than {v}"), ("age", ">=", "at least {v} years old"), ("age", "<=", "at most {v} years old"), ("age", "=", "{v} years old"), ("age", ">", "over {v} years old"), ("age", "<", "under {v} years old"), ("age", "=", "aged {v}"),
          ("price", "<", "cheaper than {v}"), ("price", ">", "more expensive than {v}"), ("price", ">", "that cost more than {v}"), ("price", "<", "that cost less than {v}"), ("price", "<=", "that cost at most {v}"), ("price", ">=", "that cost at least {v}"), ("price", "=", "that cost {v}"), ("price", "<", "priced under {v}"), ("price", ">", "priced over {v}"),
          ("salary", ">", "who earn more than {v}"), ("salary", "<", "who earn less than {v}"), ("salary", ">=", "who earn at least {v}"), ("salary", "<=", "earning at most {v}"), ("salary", ">", "earning over {v}"), ("year", ">", "from after {v}"), ("year", "<", "from before {v}"), ("year", "=", "from {v}"), ("year", ">", "after {v}"), ("year", "<", "before {v}"),
          ("pages", ">", "with more than {v} pages"), ("pages", "<", "with fewer than {v} pages"), ("pages", ">", "longer than {v} pages"), ("rating", ">", "rated above {v}"), ("rating", ">=", "rated at least {v}"), ("rating", "<", "rated below {v}"), ("population", ">", "with more than {v} inhabitants"), ("population", "<", "with fewer than {v} inhabitants"),
          ("stock", "<", "with fewer than {v} in stock"), ("stock", ">", "with more than {v} in stock"), ("points", ">", "with more than {v} points"), ("points", "<", "with fewer than {v} points"), ("wins", ">", "with more than {v} wins"), ("score", ">", "that scored more than {v}"), ("score", "<", "that scored less than {v}"), ("visitors", ">", "with over {v} visitors"),
          ("weight", ">", "heavier than {v}"), ("weight", "<", "lighter than {v}"), ("total", ">", "with a total above {v}"), ("quantity", ">", "with a quantity over {v}"), ("temperature", ">", "warmer than {v}"), ("temperature", "<", "colder than {v}")]
TEXT_IDIOMS = [("city", "who live in {v}"), ("city", "from {v}"), ("city", "living in {v}"), ("city", "in {v}"), ("city", "based in {v}"), ("country", "from {v}"), ("country", "in {v}"), ("country", "who live in {v}"), ("department", "in the {v} department"), ("department", "who work in {v}"), ("department", "in {v}"), ("author", "by {v}"), ("author", "written by {v}"),
               ("artist", "by {v}"), ("director", "directed by {v}"), ("director", "by {v}"), ("status", "that are {v}"), ("status", "with status {v}"), ("status", "which are {v}"), ("color", "that are {v}"), ("color", "painted {v}"), ("brand", "made by {v}"), ("brand", "by {v}"), ("name", "named {v}"), ("name", "called {v}"), ("title", "titled {v}"), ("title", "called {v}"),
               ("category", "in the category {v}"), ("category", "in the {v} category"), ("language", "written in {v}"), ("genre", "in the genre {v}"), ("genre", "of the genre {v}"), ("customer", "placed by {v}"), ("customer", "of customer {v}"), ("destination", "to {v}"), ("origin", "from {v}"), ("place", "in {v}"), ("teacher", "taught by {v}"), ("coach", "coached by {v}"),
               ("product", "for the product {v}"), ("manager", "whose manager is {v}"), ("owner", "owned by {v}"), ("airline", "operated by {v}"), ("location", "in the {v}")]
TEXT_COLUMNS = set("username email city country name customer product status color category brand department manager title author genre language model owner grade school teacher director mayor origin destination airline artist album coach currency location place phone".split())
GET = ["Show", "List", "Get", "Select", "Give me", "Find", "Return", "Display", "Fetch", "Write an SQL query to get", "Write an SQL query that returns", "Generate an SQL query to show", "Write SQL to select", "I need", "I want", "SQL query for", "Generate SQL to list", "Write a query to find", "Show me", "Query", "Retrieve", "Create an SQL query to fetch", "Please list",
       "Write a SELECT statement for", "Give me an SQL query for", "Write SQL for", "Generate an SQL query that lists", "What are", "Can you show", "Please write SQL to show", "Print", "Pull", "Write a SQL statement to get", "Generate a query for", "Look up", "SQL to show"]
FROM = ["from {t}", "from the {t} table", "from table {t}", "from the table {t}", "in {t}", "of all {t}", "of the {t}", "in the {t} table", "of {t}", "from '{t}'", "for all {t}", "from the '{t}' table", "of every row in {t}"]
ALL = ["all columns", "everything", "all fields", "all data", "*", "all the columns", "every column", "complete rows", "all information", "the whole rows"]
WHERE = ["where {w}", "where {w}", "where the {w}", "with {w}", "whose {w}", "if {w}", "that have {w}", "for which {w}", "when {w}", "only where {w}", "such that {w}", "having {w}", ", but only those with {w}", "which have {w}"]
SORT = [("sorted by {k}", ""), ("ordered by {k}", ""), ("sort by {k}", ""), ("in order of {k}", ""), ("sorted by {k} ascending", ""), ("ordered by {k} in ascending order", ""), ("sorted by {k} from low to high", ""), ("lowest {k} first", ""), ("ordered by {k}, smallest first", ""), ("in ascending order of {k}", ""), ("sorted by {k} in increasing order", ""),
        ("sorted by {k} descending", " DESC"), ("ordered by {k} in descending order", " DESC"), ("in descending order of {k}", " DESC"), ("highest {k} first", " DESC"), ("sorted by {k}, highest first", " DESC"), ("ordered by {k} from high to low", " DESC"), ("ordered by {k}, largest first", " DESC"), ("sort by {k} desc", " DESC"), ("order by {k} descending", " DESC"),
        ("sorted by {k} in decreasing order", " DESC"), ("with the highest {k} first", " DESC"), ("with the lowest {k} first", ""), ("order by {k}", ""), ("sorted by {k} in reverse order", " DESC"), ("by {k}, biggest first", " DESC")]
LIMITS = ["limit {n}", "limited to {n}", "only the first {n}", "only {n} rows", "at most {n} rows", "just {n} results", "first {n} rows", "limit the result to {n}", "{n} rows at most", "show only {n}", "no more than {n} rows", "with a limit of {n}"]
COUNTS = ["How many {t} are there", "How many {t} do we have", "Count the {t}", "Count all {t}", "Number of {t}", "What is the number of {t}", "Count the rows in {t}", "How many rows are in {t}", "Write SQL to count the {t}", "Give me the number of {t}", "SQL: count {t}", "How many entries does {t} have", "Count how many {t} there are", "Write an SQL query to count the {t}",
          "Generate an SQL query that counts the {t}", "How many {t}", "Find the number of {t}", "Tell me how many {t} exist", "Return the count of {t}"]
SCHEMAS = ["{t}({c})", "{t}({c})", "Table: {t}({c})", "Table {t}({c})", "Table {t} with columns {c}.", "The table {t} has the columns {c}.", "CREATE TABLE {t} ({c});", "Schema: {t}({c})", "Table {t}: {c}", "Given the table {t} ({c}).", "We have a table {t} with the columns {c}.", "{t} ({c})", "Table: {t}\nColumns: {c}", "Columns of {t}: {c}"]
COMPARISONS = {"is": "=", "equals": "=", "=": "=", "is greater than": ">", "is more than": ">", "is over": ">", ">": ">",
               "is less than": "<", "is under": "<", "is below": "<", "<": "<", "is at least": ">=", "is at most": "<=",
               "is not": "!="}


def table(source: Source) -> tuple[str, list]:
    """A table's name and columns: a usual one, or one of invented identifiers."""
    if source.chance(0.6):
        name = source.choice(sorted(TABLES))
        columns = TABLES[name].split()
        return name, ["id"] + source.sample(columns[1:], source.integer(2, len(columns) - 1)) if source.chance(0.5) \
            else source.sample(columns, source.integer(3, len(columns)))
    columns = list({source.invent(invented.identifier): None for _ in range(source.integer(3, 6))})
    return source.invent(invented.word) + source.choice(("", "s", "_data")), columns


def condition(source: Source, columns: list) -> tuple[str, str]:
    """One comparison, as the question says it and as SQL says it."""
    column = source.choice(columns)
    if source.chance(0.5):
        words = source.choice(sorted(COMPARISONS))
        value = str(source.integer(0, 9999)) if source.chance(0.7) else repr(invented.amount(source.random))
        return f"{column} {words} {value}", f"{column} {COMPARISONS[words]} {value}"
    words = source.choice(("is", "is", "equals", "=", "is not"))
    if source.chance(0.5):
        value = source.value(source.choice((CITIES, FIRST_NAMES, COMPANIES, COLORS)))
    else:
        value = source.invent(source.choice((invented.name, invented.word, invented.code)))
    quoted = f"'{value}'" if source.chance(0.5) else value
    if words == "=":
        quoted = f"'{value}'"
    if value.replace("-", "").isdigit():
        quoted = f"'{value}'"
    return f"{column} {words} {quoted}", f"{column} {COMPARISONS[words]} '{value}'"


def text_value(source: Source) -> str:
    """A value for a column of text, a word or several."""
    if source.chance(0.6):
        return source.value(source.choice((CITIES, FIRST_NAMES, COMPANIES, COLORS, more.CITIES, more.FIRST, COUNTRIES, more.GENRES, more.DEPARTMENTS, JOBS, STATES, PRODUCTS)))
    return source.invent(source.choice((invented.name, invented.word, invented.code, invented.full_name)))


def number(source: Source) -> str:
    roll = source.random.random()
    return str(source.integer(1, 100) if roll < 0.4 else source.integer(0, 9999) if roll < 0.75 else source.integer(1, 50) * source.choice((10, 100, 1000))) if roll < 0.9 else repr(invented.amount(source.random))


def free_condition(source: Source, columns: list) -> tuple[str, str, bool]:
    """A condition, as a question says it and as SQL says it, and whether the words need no "where"."""
    idioms = [(c, op, words) for c, op, words in IDIOMS if c in columns] + [(c, None, words) for c, words in TEXT_IDIOMS if c in columns]
    if idioms and source.chance(0.45):
        column, operator, words = source.choice(idioms)
        if operator:
            value = str(source.integer(1900, 2026)) if column == "year" else number(source)
            return words.format(v=value), f"{column} {operator} {value}", True
        value = text_value(source)
        return words.format(v=value if source.chance(0.7) else f"'{value}'"), f"{column} = '{value}'", True
    column = source.choice(columns)
    textual = column in TEXT_COLUMNS if source.chance(0.85) else source.chance(0.5)
    if not textual:
        operator = source.choice((">", "<", ">=", "<=", "=", ">", "<", "=", "!="))
        value = str(source.integer(1900, 2026)) if column == "year" else number(source)
        return source.choice(NUMBER_TESTS[operator]).format(c=column, v=value), f"{column} {operator} {value}", False
    operator, value = source.choice(("=", "=", "=", "=", "!=")), text_value(source)
    words = source.choice(TEXT_TESTS[operator])
    if value.replace("-", "").replace(" ", "").isdigit() or " " in value:
        words = words.replace("{v}", "{q}")
    quote = source.choice(("'{}'", "'{}'", '"{}"'))
    return words.format(c=column, v=value, q=quote.format(value)), f"{column} {operator} '{value}'", False


def composed(source: Source) -> tuple[str, str]:
    """A question put together from parts, and its statement."""
    name, columns = table(source)
    with_schema = source.chance(0.55)
    shown = source.sample(columns, min(len(columns), source.choice((1, 1, 2, 2, 3, 4))))
    star = source.chance(0.25)
    tail, sql = [], ""
    counted = source.chance(0.22)
    if source.chance(0.85 if not counted else 0.7):
        parts = [free_condition(source, columns)]
        if source.chance(0.35):
            parts.append(free_condition(source, columns))
        if len(parts) == 2 and source.chance(0.1):
            parts.append(free_condition(source, columns))
        link = " and " if source.chance(0.8) else " or "
        words = []
        for spoken, _, free in parts:
            if free:
                words.append(spoken)
            elif not words or source.chance(0.3):
                words.append(source.choice(WHERE[:4] if words else WHERE).format(w=spoken))
            else:
                words.append(spoken if not parts[0][2] else f"{source.choice(('with', 'where'))} {spoken}")
        tail.append((", ".join(words[:-1]) + link + words[-1]) if len(words) > 1 else words[0])
        sql += " WHERE " + link.upper().join(test for _, test, _ in parts)
    if counted:
        question = source.choice(COUNTS).format(t=name) + "".join(" " + part for part in tail)
        query = f"SELECT COUNT(*) FROM {name}{sql}"
        question += source.choice(("?", "?", ".", "")) if question.startswith(("How", "What")) else source.choice((".", ""))
    elif source.chance(0.07):
        key, n = source.choice(columns), source.integer(1, 50)
        question = source.choice(("Show the top {n} {t} by {k}", "Top {n} {t} by {k}", "List the {n} {t} with the highest {k}", "Get the {n} {t} with the largest {k}", "Which {n} {t} have the highest {k}?", "Give me the {n} {t} with the biggest {k}")).format(n=n, t=name, k=key)
        query = f"SELECT * FROM {name} ORDER BY {key} DESC LIMIT {n}"
    else:
        if source.chance(0.4):
            key = source.choice(columns)
            words, suffix = source.choice(SORT)
            tail.append(source.choice((", ", " ", " ")) + words.format(k=key))
            sql += f" ORDER BY {key}{suffix}"
        if source.chance(0.25):
            n = source.choice((1, 3, 5, 10, 20, 100, source.integer(1, 60)))
            tail.append(source.choice((", ", ", ", " and ")) + source.choice(LIMITS).format(n=n))
            sql += f" LIMIT {n}"
        quote = source.choice(("{}", "{}", "{}", "'{}'", '"{}"', "`{}`"))
        what = source.choice(ALL) if star else source.choice((listing, listing, ", ".join))([quote.format(column) for column in shown])
        if not star and quote == "{}" and source.chance(0.5):
            what = "the " + what
            if name in TABLES and source.chance(0.5):
                what = "the " + listing([plural(column) for column in shown])
        if star and source.chance(0.25):
            subject = source.choice(("all {t}", "every row of {t}", "all rows from {t}", "all rows in the {t} table", "the {t}", "all the {t}", "all records from {t}")).format(t=name)
        else:
            subject = what + " " + source.choice(FROM).format(t=name)
        question = f"{source.choice(GET)} {subject}"
        for part in tail:
            question += part if part.startswith((", ", " ")) else " " + part
        question += source.choice((".", ".", ""))
        query = f"SELECT {'*' if star else ', '.join(shown)} FROM {name}{sql}"
    question = question.replace(" ,", ",").replace("  ", " ")
    if with_schema:
        kinds = source.chance(0.15)
        listed = ", ".join(f"{column} {'TEXT' if column in TEXT_COLUMNS else 'INTEGER'}" if kinds else column for column in columns)
        schema = source.choice(SCHEMAS).format(t=name, c=listed)
        lead = source.choice(("", "", "", "Question: ", "Request: ", "Write SQL: ", "Task: "))
        question = f"{schema}{source.choice((chr(10), chr(10), ' ', chr(10) * 2))}{lead}{question}" if source.chance(0.8) else f"{question}{source.choice((chr(10), ' '))}{schema}"
    elif source.chance(0.25):
        question = source.choice(("SQL: ", "Write an SQL query. ", "Translate to SQL: ", "Generate SQL: ", "SQL query: ", "As SQL: ", "Turn this into SQL: ", "Write SQL for this: ")) + question
    elif source.chance(0.2):
        question += source.choice((" Write SQL.", " Answer with SQL.", " Use SQL.", "\nSQL:", " (SQL)"))
    return question, query


def plural(column: str) -> str:
    if column.endswith("y") and column[-2:-1] not in "aeou":
        return column[:-1] + "ies"
    return column if column.endswith("s") or "_" in column or column in ("active", "humidity", "population", "mileage", "stock", "paid", "hired", "joined") else column + "s"


def make(source: Source) -> Sample:
    if not source.held_out_templates and source.chance(0.65):
        prompt, query = composed(source)
        return Sample("sql", ask(prompt), query, facts={"thought": f"The query is {query.split(' WHERE')[0]} and so on."})
    name, columns = table(source)
    schema = f"{name}({', '.join(columns)})"
    shown = source.sample(columns, min(len(columns), source.choice((1, 1, 2, 2, 3))))
    kind = source.choice(("plain", "filtered", "filtered", "filtered", "counted", "ordered", "aggregated"))
    if kind == "plain":
        prompt = source.template(PLAIN).format(columns=listing(shown), quoted=listing([f"'{column}'" for column in shown]), table=name)
        query = f"SELECT {', '.join(shown)} FROM {name}"
    elif kind == "filtered":
        words, test = condition(source, columns)
        query = f"SELECT {', '.join(shown)} FROM {name} WHERE {test}"
        if source.chance(0.25):
            more_words, more_test = condition(source, columns)
            link = source.choice(("and", "or"))
            words, query = f"{words} {link} {more_words}", f"{query} {link.upper()} {more_test}"
        prompt = source.template(FILTERED).format(schema=schema, columns=listing(shown), condition=words, table=name)
    elif kind == "counted":
        words, test = condition(source, columns)
        prompt = source.template(COUNTED).format(schema=schema, condition=words, table=name)
        query = f"SELECT COUNT(*) FROM {name} WHERE {test}"
    elif kind == "ordered":
        key = source.choice(columns)
        direction, suffix = source.choice((("", ""), (" descending", " DESC"), (", highest first", " DESC"), (", lowest first", "")))
        limit = source.integer(1, 50) if source.chance(0.4) else None
        prompt = source.template(ORDERED).format(schema=schema, columns=listing(shown), key=key, direction=direction, table=name)
        query = f"SELECT {', '.join(shown)} FROM {name} ORDER BY {key}{suffix}"
        if limit:
            prompt += source.choice((" Only the first {n}.", " Limit {n}.", " At most {n} rows.")).format(n=limit)
            query += f" LIMIT {limit}"
    else:
        word, column = source.choice(sorted(AGGREGATES)), source.choice(columns)
        prompt = source.template(AGGREGATED).format(schema=schema, word=word, column=column, table=name)
        query = f"SELECT {AGGREGATES[word]}({column}) FROM {name}"
    return Sample("sql", ask(prompt), query, facts={"thought": f"The query reads from {name}."})


def judge(sample: Sample, text: str) -> bool:
    return text.strip().rstrip(";") == sample.answer
