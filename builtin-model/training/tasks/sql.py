"""SQL: a table and a question in, one `SELECT` statement out.

Wordings are literal enough that one statement is right: the columns named, in the order named, and the
condition, order and limit that the question states.
"""
import invented
from sample import Sample, ask
from source import Source, Templates
from tasks.english import listing
from words.people import FIRST_NAMES
from words.places import CITIES
from words.things import COLORS, COMPANIES

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


def make(source: Source) -> Sample:
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
