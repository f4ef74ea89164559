#!/usr/bin/env python3
"""Writes the checkpoints of this folder that bitsandbytes quantized, with what transformers computes on the values
that bitsandbytes makes of them again.

usage: make_bitsandbytes.py [NAME...]
needs: torch 2.15, transformers 5.17, accelerate 1.15, bitsandbytes 0.50 or later (CPU)

The files are those of make.py. `last_logits` and `greedy` are of a model in float32 whose linear layers have the
dequantized weights.
"""
import sys
import tempfile

import bitsandbytes
import torch
from bitsandbytes.functional import dequantize_4bit
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Qwen3Config

from make import expected_of, folder_of, randomize, save

CONFIG = Qwen3Config(
    vocab_size=96, hidden_size=64, intermediate_size=320, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
    num_hidden_layers=1, max_position_embeddings=256, bos_token_id=None, eos_token_id=0, pad_token_id=None,
    tie_word_embeddings=False)

FORMS = {
    "bitsandbytes_nf4": BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4"),
    "bitsandbytes_nf4_nested": BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
        llm_int8_skip_modules=["lm_head", "model.layers.0.self_attn.o_proj"]),
    "bitsandbytes_fp4": BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="fp4"),
    "bitsandbytes_int8": BitsAndBytesConfig(load_in_8bit=True),
}


def dequantized(layer):
    weight = layer.weight
    if isinstance(weight, bitsandbytes.nn.Params4bit):
        state = weight.quant_state
        state.dtype = torch.float32
        return dequantize_4bit(weight.data, state)
    if isinstance(weight, bitsandbytes.nn.Int8Params):
        scales = weight.SCB if weight.SCB is not None else layer.state.SCB
        return weight.data.float() * scales[:, None].float() / 127
    return weight.data.float()


def main():
    for name, form in FORMS.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        torch.manual_seed(sum(map(ord, name)))
        plain = AutoModelForCausalLM.from_config(CONFIG, attn_implementation="eager").float().eval()
        randomize(plain)
        with tempfile.TemporaryDirectory() as unquantized:
            plain.bfloat16().save_pretrained(unquantized)
            quantized = AutoModelForCausalLM.from_pretrained(
                unquantized, quantization_config=form, dtype=torch.bfloat16, device_map="cpu")
        plain = plain.float()
        layers = dict(quantized.named_modules())
        with torch.no_grad():
            for module_name, module in plain.named_modules():
                if isinstance(module, torch.nn.Linear):
                    module.weight.copy_(dequantized(layers[module_name]))
        expected, margin = expected_of(plain, CONFIG.vocab_size)
        save(quantized, folder_of(name), expected)
        print(name, "smallest margin", margin)


if __name__ == "__main__":
    main()
