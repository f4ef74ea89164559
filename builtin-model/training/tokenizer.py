"""Trains the tokenizer: byte-level BPE on the generator's own text.

usage: python tokenizer.py OUT_FOLDER [--samples N]

Text is first cut into runs of letters, single digits, and runs of everything else. So a name has the
same tokens after a space, a quote or a dot, which makes copying plain; numbers are spelled digit by
digit; and JSON's `": "` and `", "` are one token each.
"""
import argparse
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import mixture
from encode import prompt_text
from source import Source

VOCABULARY = 4096
CONTROL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
ADDED_TOKENS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
CUTS = r"\p{L}+|\p{N}|[^\p{L}\p{N}]+"


def corpus(samples: int):
    source = Source("tokenizer")
    for _ in range(samples):
        sample = mixture.draw(source)
        text = prompt_text(sample) + sample.completion()
        for token in CONTROL_TOKENS + ADDED_TOKENS:
            text = text.replace(token, "\0")
        yield from text.split("\0")


def train(samples: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(CUTS), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(CONTROL_TOKENS) - len(ADDED_TOKENS), max_token_length=16,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(samples), trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in CONTROL_TOKENS])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in ADDED_TOKENS])
    return tokenizer


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("out", type=pathlib.Path)
    arguments.add_argument("--samples", type=int, default=60_000)
    options = arguments.parse_args()
    tokenizer = train(options.samples)
    options.out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(options.out / "tokenizer.json"))
    print(f"{tokenizer.get_vocab_size()} tokens")


if __name__ == "__main__":
    main()
