"""The built-in model's tokenizer, 200 schemas of MaskBench, and walks over what masks allow."""

import json
import os
import pathlib
import random

import jsonschema
import numpy
import pytest
from _gguf import MODEL, ROOT, STOP, gguf_path

from formwork.grammar import (
    CompileError,
    GrammarCompiler,
    GrammarMatcher,
    TokenizerInfo,
    allocate_token_bitmask,
)

MASKBENCH = ROOT.parent / "shared/maskbench"
NUM_SCHEMAS = int(os.environ.get("PLUGINS_SCHEMAS", "200"))

__all__ = ["MODEL", "ROOT", "STOP", "gguf_path"]

# Both plug-ins are found by their entry points; vLLM's is off without this.
os.environ["FORMWORK_VLLM"] = "1"


@pytest.fixture(scope="session")
def tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(MODEL)


@pytest.fixture(scope="session")
def info(tokenizer):
    return TokenizerInfo.from_huggingface(tokenizer, vocab_size=4096)


@pytest.fixture(scope="session")
def compiler(info):
    return GrammarCompiler(info)


@pytest.fixture(scope="session")
def tokens(info):
    return info.decoded_vocab()


@pytest.fixture(scope="session")
def schemas(compiler):
    """Every 37th file's schema, but those that Formwork refuses, `jsonschema` can't check or need many tokens."""
    if not MASKBENCH.is_dir():
        pytest.skip(f"{MASKBENCH} is missing: nothing is tested against MaskBench")
    files = sorted(MASKBENCH.glob("*.json"))
    chosen, refused, unchecked, long = [], 0, 0, 0
    for at in range(len(files)):
        if len(chosen) == NUM_SCHEMAS:
            break
        schema = json.loads(files[at * 37 % len(files)].read_text())["schema"]
        try:
            validator(schema).validate(None)
        except jsonschema.ValidationError:
            pass
        except Exception:
            unchecked += 1
            continue
        try:
            grammar = compiler.compile_json_schema(schema, whitespace="flexible")
        except CompileError:
            refused += 1
            continue
        # The built-in model has 2,048 positions.
        if GrammarMatcher(grammar).min_tokens_to_complete() > 1000:
            long += 1
            continue
        chosen.append(schema)
    print(f"{len(chosen)} schemas; {refused} refused, {unchecked} not checkable, {long} long", flush=True)
    return chosen


def validator(schema):
    cls = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    cls.check_schema(schema)
    return cls(schema)


def is_valid(schema, text):
    return validator(schema).is_valid(json.loads(text))


class Walk:
    """Chooses tokens that a mask allows: at random, and after `FREE` of them what soonest ends the text.

    A matcher beside the host's accepts the same tokens, and the host's masks must be its masks.
    """

    FREE = 60

    def __init__(self, tokens, seed, grammar):
        self.tokens = tokens
        self.random = random.Random(seed)
        self.matcher = GrammarMatcher(grammar, override_stop_tokens=[STOP])
        self.bitmask = allocate_token_bitmask(1, len(tokens))

    def choose(self, row=None):
        """A token that a row of a host's bitmask allows, accepted."""
        self.matcher.fill_next_token_bitmask(self.bitmask)
        if row is not None:
            assert (numpy.asarray(row) == self.bitmask[0]).all()
        if self.matcher.num_accepted >= self.FREE:
            left = self.matcher.min_tokens_to_complete()
            self.matcher.fill_next_token_bitmask_within(self.bitmask, left)
        bits = numpy.unpackbits(self.bitmask[0].view(numpy.uint8), bitorder="little")
        token = self.random.choice(numpy.flatnonzero(bits).tolist())
        assert self.matcher.accept_token(token)
        return token


def text_of(tokens, ids):
    """The text that tokens write, without the stop token at its end."""
    assert ids[-1] == STOP
    return b"".join(tokens[token] for token in ids[:-1]).decode()
