"""Measures the tasks on values and wordings that training never saw.

usage: python evaluate.py WEIGHTS [--count N] [--familiar] [--show N] [--only TASK]

WEIGHTS is a model folder or a training checkpoint. Decoding is greedy, in float32. `--familiar` uses the
training's wordings with held-out values instead; `--show` prints that many misses per task.
"""
import argparse
import json
import pathlib

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

import mixture
from encode import Encoder
from generate import greedy
from model import Qwen3, Shape
from source import Source

BATCH = 64  # at most, on the processor; a GPU takes all cases at once
SLACK = 20  # an answer that goes on for so many tokens beyond the longest right one of its batch is wrong
AIMS = {"sentiment": 90, "extraction": 85, "car": 95, "sql": 90, "email": 95, "tool_call": 85, "reasoning": 90, "game": 85}


def load(path: pathlib.Path) -> Qwen3:
    """The network of a model folder (as bf16 as it is there) or of a checkpoint."""
    model = Qwen3(Shape())
    if path.is_dir():
        state = {name: weight.float() for name, weight in load_file(path / "model.safetensors").items()}
    else:
        state = torch.load(path, weights_only=True, map_location="cpu")["model"]
    model.load_state_dict(state)
    return model.eval()


def evaluate(model: Qwen3, encoder: Encoder, task: str, count: int, familiar: bool = False, seed: int = 1) -> tuple[float, list]:
    """The share of right answers in percent, and the misses as `(sample, answer)`."""
    source = Source(f"evaluation {task} {seed}", held_out=True, familiar_templates=familiar)
    samples = [mixture.make(source, task) for _ in range(count)]
    samples.sort(key=lambda sample: len(encoder.prompt(sample)))
    misses = []
    size = count if model.cos.is_cuda else BATCH
    for start in range(0, count, size):
        batch = samples[start:start + size]
        limit = max(len(encoder.completion(sample)) for sample in batch) + SLACK
        answers = greedy(model, [encoder.prompt(s) for s in batch], encoder.end_of_turn, limit, encoder.tokenizer.get_vocab_size())
        for sample, ids in zip(batch, answers):
            text = encoder.tokenizer.decode(ids, skip_special_tokens=False)
            if not mixture.TASKS[task].judge(sample, text):
                misses.append((sample, text))
    return 100 * (1 - len(misses) / count), misses


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("weights", type=pathlib.Path)
    arguments.add_argument("--tokenizer", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent / "model" / "tokenizer.json")
    arguments.add_argument("--count", type=int, default=300)
    arguments.add_argument("--familiar", action="store_true")
    arguments.add_argument("--show", type=int, default=0)
    arguments.add_argument("--only", nargs="+", choices=sorted(mixture.TASKS))
    options = arguments.parse_args()
    torch.set_num_threads(1)
    model, encoder = load(options.weights), Encoder(Tokenizer.from_file(str(options.tokenizer)))
    results = {}
    for task in options.only or mixture.TASKS:
        results[task], misses = evaluate(model, encoder, task, options.count, options.familiar)
        print(f"{task:11} {results[task]:5.1f} %   aim {AIMS.get(task, '-')}", flush=True)
        for sample, text in misses[:options.show]:
            print(f"    prompt: {sample.messages[-1]['content']!r}\n    wanted: {sample.completion()!r}\n    got:    {text!r}")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
