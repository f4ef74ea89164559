#!/usr/bin/env python3
"""The time of N questions about one text as one /v1/decisions request, over that of N constrained chat requests.

Needs a running server and Python alone:

    formwork serve MODEL --port 8123 --disable-log-stats &
    python3 benchmarks/decisions.py --base-url http://127.0.0.1:8123

The chat requests say the same words, may answer with the same options (`structured_outputs.choice`), and are sent at
once. Both ways take turns, each time about a text that no cache has. Ratios are medians over the rounds.
"""

import argparse
import http.client
import json
import random
import statistics
import threading
import time
import urllib.parse

WORDS = """the a customer letter money team order week late box answer shop price return phone card bill again never sent
paid twice cancel help reply wrong size blue open broken new store please asked told waited""".split()
OPTIONS = {
    "yes or no": ["yes", "no"],
    "teams": ["billing", "billing and refunds", "technical support", "technical documents", "sales"],
    "levels": ["not angry at all", "not so angry", "angry", "very angry", "very, very angry indeed"],
}
TASK = (
    "Answer the question about the following text with one of its possible answers, exactly as it stands there, and with "
    "nothing else."
)


def post(base, path, body):
    connection = http.client.HTTPConnection(base.hostname, base.port, timeout=600)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    if response.status != 200:
        raise SystemExit(f"{path}: {answer}")
    return answer


def question(i, options):
    return f"Question number {i}: {random.Random(i).choice(WORDS)}?", options


def decide(base, text, questions):
    """Seconds of one request with all questions."""
    asked = [
        {"type": "choice", "instructions": words, "choices": [{"value": option} for option in options]}
        for words, options in questions
    ]
    start = time.perf_counter()
    post(base, "/v1/decisions", {"input": text, "questions": asked})
    return time.perf_counter() - start


def chat(base, text, questions):
    """Seconds of a request for each question, all at once."""

    def ask(words, options):
        listed = "".join(f"\n- {option}" for option in options)
        message = f"{TASK}\n\n{text}\n\nQuestion: {words}\nPossible answers:{listed}"
        body = {
            "messages": [{"role": "user", "content": message}],
            "temperature": 1, "max_tokens": 64, "structured_outputs": {"choice": options},
        }
        post(base, "/v1/chat/completions", body)

    threads = [threading.Thread(target=ask, args=question) for question in questions]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base-url", default="http://127.0.0.1:8000")
    parser.add_argument("--words", type=int, default=600, help="words of the text")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--questions", type=int, nargs="+", default=[1, 8, 64])
    arguments = parser.parse_args()
    base = urllib.parse.urlsplit(arguments.base_url)
    texts = random.Random(time.time_ns())

    def text():
        return " ".join(texts.choices(WORDS, k=arguments.words))

    print("| questions | options | decisions, ms | chat requests, ms | ratio (quartiles) |")
    print("|---:|---|---:|---:|---:|")
    for count in arguments.questions:
        for name, options in OPTIONS.items():
            questions = [question(i, options) for i in range(count)]
            # The grammar is compiled, and both ways are warm.
            decide(base, text(), questions)
            chat(base, text(), questions)
            times = [
                (decide(base, text(), questions), chat(base, text(), questions))
                for _ in range(arguments.rounds)
            ]
            ratios = [ours / theirs for ours, theirs in times]
            low, middle, high = statistics.quantiles(ratios, n=4)
            ours, theirs = (1000 * statistics.median(column) for column in zip(*times))
            print(f"| {count} | {name} | {ours:.0f} | {theirs:.0f} | {middle:.2f} ({low:.2f} to {high:.2f}) |", flush=True)


if __name__ == "__main__":
    main()
