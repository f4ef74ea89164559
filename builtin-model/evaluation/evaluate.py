#!/usr/bin/env python3
"""Judges the built-in model on the cases beside this file, free and constrained.

    evaluate.py [--batch target/release/formwork-batch] [--model FOLDER] [--task T]... [--misses FILE]

Every case is asked twice by formwork-batch at temperature 0: once without its constraint and once with it.
The table has the share of right answers of each; README.md says what right means.
"""

import argparse
import json
import re
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CASES = HERE / "cases"
ROOT = HERE.parent.parent

TASKS = ["sentiment", "extraction", "game", "email", "sql", "tool_call", "sums"]
# Room for the answer, and for the thought before it where there is one.
MAX_TOKENS = {"sentiment": 60, "email": 60, "sums": 400}
MAX_TOKENS_ELSE = 200


def read_cases(task):
    """The cases of a task, in the order of the file."""
    with open(CASES / f"{task}.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def request_of(task, case, mode):
    """The line that formwork-batch gets for a case; `mode` is `free` or `constrained`."""
    body = {
        "messages": case["messages"],
        "temperature": 0,
        "max_tokens": MAX_TOKENS.get(task, MAX_TOKENS_ELSE),
        **case.get("request", {}),
    }
    if "tools" in case:
        body["tools"] = case["tools"]
        body["tool_choice"] = "auto"
    if mode == "constrained":
        body.update(case["constraint"])
    return {"custom_id": case["id"], "method": "POST", "url": "/v1/chat/completions", "body": body}


def answers(batch, model, requests):
    """Runs formwork-batch over the requests. Returns (message, error) by `custom_id`; one of the two is None."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "requests.jsonl", Path(folder) / "answers.jsonl"
        source.write_text("".join(json.dumps(request) + "\n" for request in requests), encoding="utf-8")
        command = [batch, "-i", str(source), "-o", str(target), "--no-progress"]
        if model:
            command += ["--model", model]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{batch} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        found = {}
        for line in target.read_text(encoding="utf-8").splitlines():
            result = json.loads(line)
            response = result.get("response") or {}
            body = response.get("body") or {}
            if result.get("error") or response.get("status_code") != 200:
                found[result["custom_id"]] = (None, result.get("error") or body)
            else:
                found[result["custom_id"]] = (body["choices"][0]["message"], None)
        return found


def same_json(one, other):
    """Whether two JSON values are equal. Python alone takes 1, 1.0 and true for the same."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_json(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    return one == other


def unique_keys(pairs):
    """An object from its pairs; one that has a key twice is no right answer."""
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key is there twice")
    return result


def json_is(text, expected):
    """Whether the text is the JSON value that is expected."""
    try:
        value = json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError):
        return False
    return same_json(value, expected)


def right_sentiment(message, case):
    """The first word, without punctuation and case."""
    words = (message.get("content") or "").split()
    return bool(words) and words[0].strip(".,;:!?\"'`*()[]").lower() == case["expected"]


def right_object(message, case):
    """The whole answer is the object."""
    return json_is(message.get("content") or "", case["expected"])


def right_email(message, case):
    """The whole answer is the address."""
    return (message.get("content") or "").strip() == case["expected"]


def fill(tables):
    """A database in memory that has the tables of a case."""
    database = sqlite3.connect(":memory:")
    for name, table in tables.items():
        columns = ", ".join(f'"{column}"' for column in table["columns"])
        database.execute(f'CREATE TABLE "{name}" ({columns})')
        places = ", ".join("?" * len(table["columns"]))
        database.executemany(f'INSERT INTO "{name}" VALUES ({places})', table["rows"])
    # A statement that runs on is stopped after this many steps.
    steps = 0

    def count():
        nonlocal steps
        steps += 1
        return steps > 1000

    database.set_progress_handler(count, 1000)
    return database


def selected(database, statement):
    """The column names, in lower case, and the rows of a statement."""
    cursor = database.execute(statement)
    names = [column[0].lower() for column in cursor.description or []]
    return names, cursor.fetchmany(10_000)


def right_sql(message, case):
    """The statement is one SELECT and gives the same columns and rows as the reference.

    Rows count in their order where the reference has ORDER BY. What a count's column is called does not matter.
    """
    statement = (message.get("content") or "").strip()
    if not statement.lower().startswith("select"):
        return False
    database = fill(case["tables"])
    try:
        expected_names, expected_rows = selected(database, case["expected"])
        try:
            names, rows = selected(database, statement)
        except (sqlite3.Error, sqlite3.Warning, ValueError):
            return False
    finally:
        database.close()
    if "count(" in case["expected"].lower():
        names = expected_names if len(names) == len(expected_names) else names
    if names != expected_names:
        return False
    if "order by" in case["expected"].lower():
        return rows == expected_rows
    return sorted(rows, key=repr) == sorted(expected_rows, key=repr)


def right_tool_call(message, case):
    """There is one call, of that function, with these arguments."""
    calls = message.get("tool_calls") or []
    if len(calls) != 1:
        return False
    function, expected = calls[0]["function"], case["expected"]
    return function["name"] == expected["name"] and json_is(function["arguments"], expected["arguments"])


def right_sum(message, case):
    """The last number of the answer, which comes after the thought."""
    numbers = re.findall(r"[0-9]+", message.get("content") or "")
    return bool(numbers) and int(numbers[-1]) == case["expected"]


JUDGES = {
    "sentiment": right_sentiment,
    "extraction": right_object,
    "game": right_object,
    "email": right_email,
    "sql": right_sql,
    "tool_call": right_tool_call,
    "sums": right_sum,
}


def main():
    """Asks, judges and prints."""
    parser = argparse.ArgumentParser(description="Judges the built-in model, free and constrained.")
    parser.add_argument("--batch", default=str(ROOT / "target" / "release" / "formwork-batch"), help="the formwork-batch to run")
    parser.add_argument("--model", help="the model's folder; without it, the model that is built in")
    parser.add_argument("--task", action="append", choices=TASKS, help="only this task; may come more than once")
    parser.add_argument("--misses", help="a file that gets the wrong answers, one JSON object a line")
    options = parser.parse_args()

    tasks = [task for task in TASKS if not options.task or task in options.task]
    cases = {task: read_cases(task) for task in tasks}
    right = {}
    misses = []
    for mode in ("free", "constrained"):
        requests = [request_of(task, case, mode) for task in tasks for case in cases[task]]
        found = answers(options.batch, options.model, requests)
        errors = [error for _, error in found.values() if error]
        if errors:
            print(f"{mode}: {len(errors)} requests failed, the first with {json.dumps(errors[0])}", file=sys.stderr)
        for task in tasks:
            right[task, mode] = 0
            for case in cases[task]:
                message, error = found.get(case["id"], (None, "no result"))
                if message is not None and JUDGES[task](message, case):
                    right[task, mode] += 1
                    continue
                misses.append({"id": case["id"], "mode": mode, "expected": case["expected"], "answer": message, "error": error})

    print("| task | cases | free % | constrained % |")
    print("|---|---|---|---|")
    for task in tasks:
        count = len(cases[task])
        shares = [f"{100 * right[task, mode] / count:.1f}" for mode in ("free", "constrained")]
        print(f"| {task} | {count} | {shares[0]} | {shares[1]} |")
    if options.misses:
        with open(options.misses, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(miss, ensure_ascii=False) + "\n" for miss in misses)


if __name__ == "__main__":
    main()
