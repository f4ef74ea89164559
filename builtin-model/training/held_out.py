"""Writes samples on values and wordings that training never saw, as token ids, for measuring perplexity.

usage: python held_out.py OUTPUT.json [--count N]

Each sample is `{"task": ..., "prompt": [ids], "completion": [ids]}`; the same every time.
"""
import argparse
import json
import pathlib

from tokenizers import Tokenizer

import mixture
from encode import Encoder
from source import Source


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("output", type=pathlib.Path)
    arguments.add_argument("--count", type=int, default=10, help="samples per task")
    arguments = arguments.parse_args()
    folder = pathlib.Path(__file__).parent.parent / "model"
    encoder = Encoder(Tokenizer.from_file(str(folder / "tokenizer.json")))
    lines = []
    for task in sorted(mixture.TASKS):
        source = Source(f"perplexity {task}", held_out=True, familiar_templates=False)
        for _ in range(arguments.count):
            sample = mixture.make(source, task)
            ids = {"task": task, "prompt": encoder.prompt(sample), "completion": encoder.completion(sample)}
            lines.append(json.dumps(ids))
    arguments.output.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
