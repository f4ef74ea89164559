#!/usr/bin/env python3
"""Embeddings of one batch of short texts: a server's over sentence-transformers', in speed and in their numbers.

Needs torch, sentence-transformers and a running server of the same model:

    formwork serve FOLDER --port 8123 --threads 2 --disable-log-stats &
    python3 benchmarks/pooling.py FOLDER --base-url http://127.0.0.1:8123 --threads 2

Both take turns. A round of the server is a whole request over HTTP; one of sentence-transformers is `encode`, which
tokenizes too. Texts differ in every round, so that nothing is cached. Rates are medians over the rounds.
"""

import argparse
import base64
import http.client
import json
import random
import statistics
import struct
import time
import urllib.parse

import torch
from sentence_transformers import SentenceTransformer

WORDS = """the a customer letter money team order week late box answer shop price return phone card bill again never sent
paid twice cancel help reply wrong size blue open broken new store please asked told waited""".split()


def texts(rng, count, words):
    return [" ".join(rng.choices(WORDS, k=rng.randint(words // 2, words * 3 // 2))) for _ in range(count)]


def ask(base, batch):
    connection = http.client.HTTPConnection(base.hostname, base.port, timeout=600)
    body = json.dumps({"input": batch, "encoding_format": "base64"})
    connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    if response.status != 200:
        raise SystemExit(f"/v1/embeddings: {answer}")
    vectors = (base64.b64decode(item["embedding"]) for item in answer["data"])
    return [struct.unpack(f"<{len(v) // 4}f", v) for v in vectors], answer["usage"]["prompt_tokens"]


def timed(function):
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--base-url", default="http://127.0.0.1:8000")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--words", type=int, default=12, help="words of a text, about")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    base = urllib.parse.urlparse(arguments.base_url)
    model = SentenceTransformer(arguments.model, device="cpu", model_kwargs={"dtype": torch.float32})
    rng = random.Random(7)
    own, peer, worst, tokens = [], [], 0.0, 0
    for turn in range(arguments.rounds + 2):
        batch = texts(rng, arguments.batch, arguments.words)
        seconds, (found, tokens) = timed(lambda: ask(base, batch))
        peer_seconds, expected = timed(
            lambda: model.encode(batch, batch_size=arguments.batch, show_progress_bar=False))
        worst = max(worst, max(abs(a - b) for f, e in zip(found, expected) for a, b in zip(f, e)))
        if turn >= 2:
            own.append(seconds)
            peer.append(peer_seconds)
    own, peer = statistics.median(own), statistics.median(peer)
    print(f"{arguments.batch} texts of about {tokens // arguments.batch} tokens, {arguments.threads} threads")
    print(f"formwork               {own * 1e3:8.1f} ms  {arguments.batch / own:8.0f} texts/s")
    print(f"sentence-transformers  {peer * 1e3:8.1f} ms  {arguments.batch / peer:8.0f} texts/s")
    print(f"ratio {peer / own:.2f}; largest difference of a number {worst:.1e}")


if __name__ == "__main__":
    main()
