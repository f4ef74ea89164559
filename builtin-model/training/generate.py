"""Greedy decoding of a batch of prompts with the training's own forward pass."""
import torch

from model import KeyValueCache, Qwen3


@torch.inference_mode()
def greedy(model: Qwen3, prompts: list, stop: int, max_tokens: int, vocabulary: int) -> list:
    """The most likely continuation of each prompt, up to and without the stop token.

    Prompts are padded on the left: rotary positions are relative, so a shift changes nothing, and a mask
    hides the padding.
    """
    longest = max(map(len, prompts))
    device = model.cos.device
    ids = torch.tensor([[stop] * (longest - len(prompt)) + prompt for prompt in prompts], device=device)
    visible = torch.tensor([[False] * (longest - len(prompt)) + [True] * len(prompt) for prompt in prompts], device=device)
    causal = torch.ones(longest, longest, dtype=torch.bool, device=device).tril()
    mask = (causal & visible[:, None, :]) | torch.eye(longest, dtype=torch.bool, device=device)
    cache = KeyValueCache()
    hidden = model(ids, cache, mask[:, None])
    answers = [[] for _ in prompts]
    running = list(range(len(prompts)))  # the prompt that each row of the batch continues
    for _ in range(max_tokens):
        chosen = model.logits(hidden[:, -1])[:, :vocabulary].argmax(-1)
        kept = (chosen != stop).nonzero().flatten()
        if len(kept) == 0:
            break
        if len(kept) < len(running):
            running = [running[row] for row in kept.tolist()]
            chosen, visible = chosen[kept], visible[kept]
            cache.keep(kept)
        for prompt, token in zip(running, chosen.tolist()):
            answers[prompt].append(token)
        visible = torch.cat((visible, torch.ones(len(running), 1, dtype=torch.bool, device=device)), dim=1)
        hidden = model(chosen[:, None], cache, visible[:, None, None])
    return answers
