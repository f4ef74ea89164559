"""The built-in model's tokenizer, 200 schemas of MaskBench, and walks over what masks allow."""

import json
import os
import pathlib
import random

import jsonschema
import numpy
import pytest

from formwork.grammar import CompileError, GrammarCompiler, GrammarMatcher, TokenizerInfo

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = str(ROOT / "builtin-model/model")
MASKBENCH = ROOT.parent / "shared/maskbench"
STOP = 4091
NUM_SCHEMAS = int(os.environ.get("PLUGINS_SCHEMAS", "200"))

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
            grammar = compiler.compile_json_schema(schema, strict=True, whitespace="flexible")
        except CompileError:
            refused += 1
            continue
        # The built-in model has 2,048 positions.
        if GrammarMatcher(grammar).min_tokens_to_complete() > 500:
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


class Place:
    """Whether the text so far ends within a JSON string, and which tokens then bring its end nearer."""

    def __init__(self, tokens):
        self.tokens = tokens
        self.in_string = self.is_escaped = False

    def write(self, token):
        for byte in self.tokens[token]:
            if self.is_escaped:
                self.is_escaped = False
            elif self.in_string and byte == ord("\\"):
                self.is_escaped = True
            elif byte == ord('"'):
                self.in_string = not self.in_string

    def nearer(self):
        """Beginnings of tokens, the best first."""
        return [(b'"',)] if self.in_string else [(b"}", b"]"), (b",", b":")]


class Walk:
    """Chooses tokens at random, and ever more of those that bring the end nearer."""

    def __init__(self, tokens, seed):
        self.tokens = tokens
        self.random = random.Random(seed)
        self.place = Place(tokens)
        self.steps = 0

    def choose(self, row):
        """A token that a row of a bitmask allows."""
        bits = numpy.unpackbits(numpy.asarray(row).view(numpy.uint8), bitorder="little")
        allowed = numpy.flatnonzero(bits[: len(self.tokens)]).tolist()
        assert allowed, "a mask allows no token"
        self.steps += 1
        assert self.steps < 3000, "a walk has no end"
        if self.random.random() < max(0.3, self.steps / 100):
            if STOP in allowed:
                return STOP
            for beginnings in self.place.nearer():
                best = [token for token in allowed if self.tokens[token].startswith(beginnings)]
                if best:
                    allowed = best
                    break
        token = self.random.choice(allowed)
        self.place.write(token)
        return token


def text_of(tokens, ids):
    """The text that tokens write, without the stop token at its end."""
    assert ids[-1] == STOP
    return b"".join(tokens[token] for token in ids[:-1]).decode()
