"""Decodes with transformers in the shapes of make_models.py, for a rate to compare with.

    python3 peer.py FOLDER BATCH... [--steps N] [--prompt N]

Greedy, a static cache, the forward pass compiled into a CUDA graph ("reduce-overhead"). Prints one line of JSON for
each batch: tokens a second in decode, and milliseconds of a prefill of the prompt.
"""

import argparse
import json
import time

import torch
from transformers import AutoModelForCausalLM, StaticCache


def measure(model, batch, prompt, steps, compiled):
    """Rates of one batch: prefill, two warm-up steps, then `steps` that count."""
    config = model.config
    ids = torch.randint(10, 1000, (batch, prompt), device="cuda")
    cache = StaticCache(config=config, max_cache_len=prompt + steps + 8)
    positions = torch.arange(prompt, device="cuda")
    with torch.inference_mode():
        torch.cuda.synchronize()
        begin = time.perf_counter()
        logits = model(ids, past_key_values=cache, cache_position=positions, logits_to_keep=1).logits
        token = logits[:, -1:].argmax(-1)
        torch.cuda.synchronize()
        prefill = time.perf_counter() - begin

        def step(token, at):
            logits = compiled(token, past_key_values=cache, cache_position=at).logits
            return logits[:, -1:].argmax(-1)

        at = torch.tensor([prompt], device="cuda")
        for _ in range(6):
            token = step(token.clone(), at).clone()
            at += 1
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(steps - 6):
            token = step(token.clone(), at).clone()
            at += 1
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
    return {
        "batch": batch,
        "tokens_per_second": round(batch * (steps - 6) / seconds, 1),
        "milliseconds_per_step": round(seconds / (steps - 6) * 1e3, 3),
        "prefill_milliseconds": round(prefill * 1e3, 2),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("batches", type=int, nargs="+")
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=64)
    arguments = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(arguments.folder, dtype=torch.bfloat16, device_map="cuda")
    for batch in arguments.batches:
        torch._dynamo.reset()
        compiled = torch.compile(model, mode="reduce-overhead", fullgraph=False)
        print(json.dumps(measure(model, batch, arguments.prompt, arguments.steps, compiled)), flush=True)


if __name__ == "__main__":
    main()
