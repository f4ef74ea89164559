"""A minute's check of a machine with a GPU before a full run: the device, compiling, rates, decoding, export.

usage: python smoke.py OUT_FOLDER [--workers 14] [--rows 96]
"""
import argparse
import pathlib
import sys
import tempfile
import time

import torch
from tokenizers import Tokenizer

import mixture
import train
from data import Reservoir, blocks
from encode import Encoder
from evaluate import evaluate
from model import Qwen3, Shape


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("out", type=pathlib.Path)
    arguments.add_argument("--workers", type=int, default=14)
    arguments.add_argument("--rows", type=int, default=96)
    arguments.add_argument("--device", default="cuda")
    options = arguments.parse_args()
    options.folder, options.compile, options.minutes, options.cases = pathlib.Path(tempfile.mkdtemp()), True, 0.2, 16
    options.begin_with = []
    options.tokenizer = pathlib.Path(__file__).parent.parent / "model" / "tokenizer.json"
    began = time.monotonic()
    print("torch", torch.__version__, "python", sys.version.split()[0])
    if options.device == "cuda":
        print(torch.cuda.get_device_name(), torch.cuda.mem_get_info())
    maker, tokens, since = blocks(str(options.tokenizer), "smoke"), 0, time.monotonic()
    while time.monotonic() - since < 2:
        tokens += int((next(maker)[1] > 0).sum())
    print(f"one generator: {tokens / (time.monotonic() - since) / 1e3:.0f} k tokens/s", flush=True)

    encoder = Encoder(Tokenizer.from_file(str(options.tokenizer)))
    train.LOG_SECONDS = 3
    torch.manual_seed(1)
    run = train.Run(options)
    reservoir = Reservoir(str(options.tokenizer), "compare", 1, 2000)
    batch = reservoir.batch(options.rows)
    with torch.no_grad():
        plain = float(run.loss(batch))
        run.compile()
        options.compile = False  # done
        since = time.monotonic()
        compiled = float(run.loss(batch))
    reservoir.close()
    print(f"loss of the first batch: plain {plain:.4f}, compiled {compiled:.4f} ({time.monotonic() - since:.0f} s to compile without gradients)", flush=True)
    assert abs(plain - compiled) < 0.05, "compiling changes the loss"

    def quick_report(encoder):
        model = Qwen3(Shape()).to(options.device).eval()
        model.load_state_dict(run.model.state_dict())
        for task in ("sentiment", "reasoning"):
            since = time.monotonic()
            score, misses = evaluate(model, encoder, task, options.cases)
            print(f"decoding {options.cases} cases of {task}: {time.monotonic() - since:.1f} s, {score:.0f} % right, e.g. {misses[0][1][:80] if misses else ''!r}", flush=True)

    run.report = quick_report
    run.train(encoder)
    if options.device == "cuda":
        print(f"most memory: {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
    print(f"export: {(options.out / 'model.safetensors').stat().st_size / 2**20:.1f} MiB")
    print(f"ok after {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
