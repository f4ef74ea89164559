#!/usr/bin/env python3
"""The time of N questions about one text as one /v1/decisions request, over that of N constrained chat requests.

Needs a running server and Python alone:

    formwork serve MODEL --port 8123 --disable-log-stats &
    python3 benchmarks/decisions.py --base-url http://127.0.0.1:8123

The chat requests may answer with the same options (`structured_outputs.choice`), and are sent at once: a prompt with the
question before the options, as people write it, and with the very words of the decisions' prompts, which have the
options first. The ways take turns, each time about a text that no cache has. Ratios are medians over the rounds;
tokens are those that the engine put through the model, by its metrics: they don't depend on the machine.
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


def chat(base, text, questions, options_first=False):
    """Seconds of a request for each question, all at once."""

    def ask(words, options):
        listed = "Possible answers:" + "".join(f"\n- {option}" for option in options)
        asked = f"Question: {words}"
        parts = f"{listed}\n\n{asked}" if options_first else f"{asked}\n{listed}"
        message = f"{TASK}\n\n{text}\n\n{parts}"
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


def computed_tokens(base):
    """Tokens that went through the model since the server's start."""
    # They are counted behind the answers.
    time.sleep(0.1)
    connection = http.client.HTTPConnection(base.hostname, base.port, timeout=600)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("vllm:iteration_tokens_total_sum"))


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

    ways = [
        ("decisions", decide),
        ("chat", chat),
        ("chat, options first", lambda *asked: chat(*asked, options_first=True)),
    ]
    times = "".join(f" {name}, ms | its tokens |" for name, _ in ways)
    print(f"| questions | options |{times} ratio to chat (quartiles) | to options first |")
    print("|---:|---|" + "---:|---:|" * len(ways) + "---:|---:|")
    for count in arguments.questions:
        for name, options in OPTIONS.items():
            questions = [question(i, options) for i in range(count)]
            # The grammar is compiled, and all ways are warm.
            for _, way in ways:
                way(base, text(), questions)
            rounds = []
            for _ in range(arguments.rounds):
                taken = []
                for _, way in ways:
                    before = computed_tokens(base)
                    seconds = way(base, text(), questions)
                    taken.append((seconds, computed_tokens(base) - before))
                rounds.append(taken)
            columns = list(zip(*rounds))
            cells = "".join(
                f" {1000 * statistics.median(s for s, _ in column):.0f} | {statistics.median(t for _, t in column):.0f} |"
                for column in columns
            )
            ratios = []
            for other in columns[1:]:
                of_rounds = [ours / theirs for (ours, _), (theirs, _) in zip(columns[0], other)]
                low, middle, high = statistics.quantiles(of_rounds, n=4)
                ratios.append(f" {middle:.2f} ({low:.2f} to {high:.2f}) |")
            print(f"| {count} | {name} |{cells}{''.join(ratios)}", flush=True)


if __name__ == "__main__":
    main()
