"""Writes a checkpoint, or the `model.safetensors` of a run's OUT folder, as a Hugging Face model folder.

usage: python export.py CHECKPOINT [OUT_FOLDER]

Beside the weights (bf16) it writes every small file but `tokenizer.json`, which `tokenizer.py` wrote.
"""
import argparse
import json
import pathlib

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from encode import TEMPLATE_PATH
from model import Shape
from tokenizer import ADDED_TOKENS, CONTROL_TOKENS


def write_json(path: pathlib.Path, value):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def bf16_weights(state: dict) -> dict:
    return {name: weight.to(torch.bfloat16).cpu().contiguous() for name, weight in sorted(state.items())}


def export(checkpoint: pathlib.Path, out: pathlib.Path):
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    end_of_text, end_of_turn = tokenizer.token_to_id("<|endoftext|>"), tokenizer.token_to_id("<|im_end|>")
    shape = Shape()
    state = load_file(checkpoint) if checkpoint.suffix == ".safetensors" else torch.load(checkpoint, weights_only=True, map_location="cpu")["model"]
    save_file(bf16_weights(state), out / "model.safetensors", metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)
    write_json(out / "config.json", shape.hugging_face_config(end_of_turn, end_of_text))
    write_json(out / "generation_config.json", {
        "eos_token_id": [end_of_turn, end_of_text], "pad_token_id": end_of_text, "do_sample": False,
    })
    write_json(out / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": shape.max_position_embeddings,
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "additional_special_tokens": ["<|im_start|>"],
        "clean_up_tokenization_spaces": False,
        "added_tokens_decoder": {
            str(tokenizer.token_to_id(token)): {
                "content": token, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
                "special": token in CONTROL_TOKENS,
            } for token in CONTROL_TOKENS + ADDED_TOKENS
        },
        "chat_template": TEMPLATE_PATH.read_text(),
    })


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("checkpoint", type=pathlib.Path)
    arguments.add_argument("out", type=pathlib.Path, nargs="?", default=pathlib.Path(__file__).parent.parent / "model")
    options = arguments.parse_args()
    export(options.checkpoint, options.out)
    print(f"{(options.out / 'model.safetensors').stat().st_size / 1e6:.1f} MB of weights in {options.out}")


if __name__ == "__main__":
    main()
