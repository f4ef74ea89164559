"""formwork.compat.llguidance beside llguidance itself, step by step."""

import random

import llguidance
import llguidance.hf
import llguidance.numpy
import llguidance.torch
import numpy
import pytest
import torch
from conftest import STOP

import formwork.compat.llguidance as ours
import formwork.compat.llguidance.hf
import formwork.compat.llguidance.numpy
import formwork.compat.llguidance.torch

REGEXES = ["a[bc]d?", "[a-z]{2,5}", "(true|false|null)", "[0-9]+(\\.[0-9]+)?", "ab*c"]
LARKS = ['start: "yes" | "no"', 'start: "[" item ("," item)* "]"\nitem: /[0-9]/', 'start: "a" start "b" | "c"']


@pytest.fixture(scope="module")
def tokenizers(tokenizer):
    return (
        llguidance.hf.from_tokenizer(tokenizer, n_vocab=4096),
        ours.hf.from_tokenizer(tokenizer, n_vocab=4096),
    )


def grammars():
    for regex in REGEXES:
        yield lambda module, regex=regex: module.LLMatcher.grammar_from_regex(regex)
    for lark in LARKS:
        yield lambda module, lark=lark: module.LLMatcher.grammar_from_lark(lark)
    yield lambda module: module.grammar_from("choice", '["red", "green"]')
    compact = {"whitespace_flexible": False}
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}, "b": {"type": "boolean"}},
              "required": ["a", "b"], "additionalProperties": False}
    yield lambda module: module.LLMatcher.grammar_from_json_schema(schema, overrides=compact)


def allowed(mask):
    bits = numpy.unpackbits(numpy.frombuffer(mask, dtype=numpy.uint8), bitorder="little")
    return numpy.flatnonzero(bits).tolist()


def seen(matcher):
    return (
        matcher.is_accepting(),
        matcher.is_stopped(),
        matcher.stop_reason(),
        matcher.is_error(),
        matcher.compute_ff_bytes(),
    )


def same_mask(theirs, mine):
    """Theirs; where text is forced they allow one of its spellings, and we all."""
    tokens, own = allowed(theirs.compute_bitmask()), allowed(mine.compute_bitmask())
    assert set(tokens) <= set(own) if theirs.compute_ff_bytes() else tokens == own
    assert [t for t, bias in enumerate(mine.compute_logit_bias()) if bias == 200] == own
    return tokens, own


@pytest.mark.parametrize("made", list(grammars()))
def test_a_walk_is_the_same(tokenizers, made):
    for seed in range(5):
        rng = random.Random(seed)
        theirs, mine = (
            module.LLMatcher(tokenizer, made(module))
            for module, tokenizer in zip((llguidance, ours), tokenizers, strict=True)
        )
        for _ in range(40):
            assert seen(mine) == seen(theirs)
            shared, own = same_mask(theirs, mine)
            if theirs.is_stopped():
                break
            token = rng.choice(shared)
            draft = [token, *rng.choices(range(4096), k=2)]
            if shared == own:
                assert mine.validate_tokens(draft) == theirs.validate_tokens(draft)
            wrong = rng.randrange(4096)
            if wrong not in own:
                assert mine.try_consume_tokens([wrong]) == theirs.try_consume_tokens([wrong]) == 0
            copies = theirs.deep_copy(), mine.deep_copy()
            assert theirs.consume_token(token) and mine.consume_token(token)
            if token != STOP:
                assert theirs.rollback(1) and mine.rollback(1)
                assert seen(theirs) == seen(mine) == seen(copies[0]) == seen(copies[1])
                assert theirs.consume_tokens([token]) and mine.consume_tokens([token])
        assert theirs.is_stopped()
        assert mine.consume_token(STOP) and theirs.consume_token(STOP)
        assert mine.reset() and theirs.reset()
        assert seen(mine) == seen(theirs)


def test_errors_are_states(tokenizers, tokens):
    for module, tokenizer in zip((llguidance, ours), tokenizers, strict=True):
        matcher = module.LLMatcher(tokenizer, module.LLMatcher.grammar_from_regex("a["))
        assert matcher.is_error() and matcher.get_error() and matcher.is_stopped()
        matcher = module.LLMatcher(tokenizer, module.LLMatcher.grammar_from_regex("ab"))
        assert not matcher.consume_token(tokens.index(b"x"))
        assert matcher.is_error() and not matcher.rollback(1) and not matcher.reset()
        assert allowed(matcher.compute_bitmask()) == [STOP] and matcher.stop_reason() == "InternalError"
        matcher = module.LLMatcher(tokenizer, module.LLMatcher.grammar_from_regex("ab"))
        assert not matcher.rollback(1) and matcher.is_error()
        assert module.LLMatcher.validate_grammar('start: "a"') == ""
        assert module.LLMatcher.validate_grammar("start: /a(/") != ""
        with pytest.raises(ValueError):
            module.grammar_from("nothing", "")


def test_tokenizers(tokenizers):
    theirs, mine = tokenizers
    assert mine.vocab_size == theirs.vocab_size == 4096
    assert mine.eos_token == theirs.eos_token == STOP and mine.eos_tokens == theirs.eos_tokens
    text = 'a "text", with é and 1234'
    ids = mine.tokenize_str(text)
    assert ids == theirs.tokenize_str(text) and mine.decode_str(ids) == theirs.decode_str(ids) == text
    assert mine.decode_bytes([STOP]) == theirs.decode_bytes([STOP])
    assert mine.is_special_token(STOP) and theirs.is_special_token(STOP)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_masks_of_a_batch(tokenizers, tokens, library):
    results = []
    for module, tokenizer in zip((llguidance, ours), tokenizers, strict=True):
        helpers = getattr(module, library)
        matchers = [module.LLMatcher(tokenizer, module.LLMatcher.grammar_from_regex(r)) for r in REGEXES]
        matchers[1].consume_token(tokens.index(b"1"))
        bitmask = helpers.allocate_token_bitmask(6, 4096)
        helpers.fill_next_token_bitmask_par(module.LLExecutor(), list(zip(matchers, (4, 0, 1, 5, 3))), bitmask)
        helpers.fill_next_token_bitmask(matchers[0], bitmask, 2)
        taken = helpers.consume_token_par(
            module.LLExecutor(), [(matchers[0], tokens.index(b"a")), (matchers[2], tokens.index(b"x"))]
        )
        logits = torch.zeros((6, 4100)) if library == "torch" else numpy.zeros((6, 4100), numpy.float32)
        if module is ours:
            helpers.apply_token_bitmask_inplace(logits, bitmask)
        else:
            # Theirs compiles for torch, which needs a compiler of C++.
            llguidance.numpy.apply_token_bitmask_inplace(numpy.asarray(logits), numpy.asarray(bitmask))
        results.append((numpy.asarray(bitmask).tolist(), taken, numpy.asarray(logits).tolist()))
    assert results[0] == results[1]
