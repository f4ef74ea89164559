#!/usr/bin/env python3
"""Writes the checkpoints of this folder, with what transformers computes on them.

usage: make.py [NAME...]
needs: torch 2.15, transformers 5.17 or later (CPU)

Each NAME holds config.json and model.safetensors (random weights, rounded to bfloat16) and
expected.json: `ids`, a prompt; `last_logits`, the row after it, computed in float32; `greedy`, the
next tokens by argmax.
"""
import json
import os
import sys

import torch
from transformers import (AutoModelForCausalLM, Gemma3TextConfig, MixtralConfig, Phi3Config,
                          Qwen3MoeConfig, SmolLM3Config)

BASE = dict(vocab_size=96, hidden_size=32, intermediate_size=40, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=256, bos_token_id=None, eos_token_id=0,
            pad_token_id=None)
HEAD_DIM = 12
ROTATED = 8

CONFIGS = {
    # Two rotary bases, a window in five of six layers, norms on heads.
    "gemma3": Gemma3TextConfig(
        **BASE, num_hidden_layers=7, head_dim=HEAD_DIM, query_pre_attn_scalar=20, sliding_window=9,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}),
    "mixtral": MixtralConfig(
        **BASE, num_hidden_layers=3, head_dim=HEAD_DIM, num_local_experts=5, num_experts_per_tok=2,
        sliding_window=None, rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
    # A dense layer between sparse ones, and weights of the chosen experts that don't sum to 1.
    "qwen3_moe_mixed": Qwen3MoeConfig(
        **BASE, num_hidden_layers=4, head_dim=HEAD_DIM, moe_intermediate_size=24, num_experts=6,
        num_experts_per_tok=3, norm_topk_prob=False, mlp_only_layers=[1], decoder_sparse_step=1),
    # Layers without rotation.
    "smollm3": SmolLM3Config(
        **BASE, num_hidden_layers=5, no_rope_layer_interval=2, sliding_window=None,
        rope_parameters={"rope_type": "default", "rope_theta": 2e6}),
    # A part of each head is rotated, by stretched angles.
    "phi3_longrope": Phi3Config(
        **{**BASE, "hidden_size": HEAD_DIM * 4, "max_position_embeddings": 256},
        num_hidden_layers=3, sliding_window=None, original_max_position_embeddings=32,
        rope_parameters={
            "rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": ROTATED / HEAD_DIM,
            "short_factor": [1.0, 1.1, 1.3, 1.7], "long_factor": [1.2, 2.0, 3.5, 6.0],
            "original_max_position_embeddings": 32}),
}


def randomize(model):
    """Gives a model random weights that bfloat16 holds exactly."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            if parameter.ndim == 1:
                parameter.add_(noise * 0.1)
            elif "embed" in name or "lm_head" in name:
                parameter.copy_(noise * 0.5)
            else:
                parameter.copy_(noise * 1.6 / parameter.shape[-1] ** 0.5)
            parameter.copy_(parameter.bfloat16().float())


def expected_of(model, vocab_size):
    """What a model computes for a random prompt, and by how much the second token of a step is behind at least."""
    with torch.no_grad():
        # Long enough for windows, and for the long factors of the angles.
        ids = torch.randint(1, vocab_size, (45,)).tolist()
        row = model(torch.tensor([ids])).logits[0, -1]
        sequence, margin = list(ids), 1e9
        for _ in range(12):
            logits = model(torch.tensor([sequence])).logits[0, -1]
            top = torch.topk(logits, 2).values
            margin = min(margin, float(top[0] - top[1]))
            sequence.append(int(logits.argmax()))
    last_logits = [round(float(x), 5) for x in row]
    return {"ids": ids, "last_logits": last_logits, "greedy": sequence[len(ids):]}, margin


def folder_of(name):
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), name)


def save(model, folder, expected):
    """Writes a checkpoint and what is expected of it."""
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))
    with open(os.path.join(folder, "expected.json"), "w") as file:
        json.dump(expected, file)
        file.write("\n")


def main():
    for name, config in CONFIGS.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        torch.manual_seed(sum(map(ord, name)))
        config.dtype = torch.float32
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        model = model.float().eval()
        randomize(model)
        expected, margin = expected_of(model, BASE["vocab_size"])
        save(model.bfloat16(), folder_of(name), expected)
        print(name, "smallest margin", margin)


if __name__ == "__main__":
    main()
