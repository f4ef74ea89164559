"""The drop-in for llguidance alone; python/plugins_tests walks it beside llguidance itself."""

import subprocess
import sys

import numpy
import pytest
from conftest import EOS, VOCAB

from formwork.compat.llguidance import LLExecutor, LLMatcher, LLTokenizer, grammar_from
from formwork.compat.llguidance import numpy as helpers


class Wrapper:
    tokens = VOCAB
    eos_token_id = EOS
    special_token_ids = [EOS]

    def __call__(self, text):
        return list(text.encode())


@pytest.fixture(scope="module")
def tokenizer():
    return LLTokenizer(Wrapper(), n_vocab=270)


def allowed(mask):
    bits = numpy.unpackbits(numpy.frombuffer(mask, dtype=numpy.uint8), bitorder="little")
    return numpy.flatnonzero(bits).tolist()


def test_a_tokenizer(tokenizer):
    assert (tokenizer.vocab_size, tokenizer.eos_token, tokenizer.eos_tokens) == (270, EOS, [EOS])
    assert tokenizer.tokenize_str("ab") == [97, 98] and tokenizer.decode_str([97, 256, 0xC3]) == "atrue\ufffd"
    assert tokenizer.is_special_token(EOS) and not tokenizer.is_special_token(97)
    with pytest.raises(NotImplementedError, match="parse_special"):
        tokenizer.tokenize_str("a", parse_special=True)


def test_a_text_from_its_start_to_its_end(tokenizer):
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_lark('start: "a" /[bc]/ "d"?'))
    assert not matcher.is_accepting() and matcher.compute_ff_tokens() == [97]
    assert matcher.consume_token(97) and allowed(matcher.compute_bitmask()) == [98, 99]
    assert matcher.validate_tokens([98, 100, 97]) == 2 and matcher.validate_tokens([98, 9999]) == 0
    copied = matcher.deep_copy()
    assert matcher.consume_tokens([98, 100])
    assert matcher.is_accepting() and matcher.stop_reason() == "NoExtension"
    assert allowed(matcher.compute_bitmask()) == [EOS] and matcher.compute_ff_tokens() == []
    assert matcher.consume_token(EOS) and matcher.rollback(2) and not matcher.is_accepting()
    assert copied.try_consume_tokens([99, 120]) == 1 and not copied.is_error()
    assert copied.consume_token(EOS) and copied.stop_reason() == "EndOfSentence"
    assert allowed(copied.compute_bitmask()) == [EOS] and copied.validate_tokens([EOS]) == 0
    assert copied.reset() and copied.compute_ff_bytes() == b"a"


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        ("start: /a(/", "`(` without `)`"),
        ('{"grammars": []}', "one grammar"),
        ('{"grammars"', "Expecting"),
        (LLMatcher.grammar_from_json_schema({"type": "number", "minimum": "0"}), "minimum"),
        (LLMatcher.grammar_from_json_schema({}, overrides={"coerce_one_of": True}), "coerce_one_of"),
    ],
)
def test_what_cannot_be_enforced_is_a_state(tokenizer, grammar, message):
    matcher = LLMatcher(tokenizer, grammar)
    assert matcher.is_error() and matcher.is_stopped() and message in matcher.get_error()
    assert not matcher.consume_token(97) and not matcher.reset() and not matcher.rollback(0)
    assert allowed(matcher.compute_bitmask()) == [EOS] and matcher.compute_logit_bias()[EOS] == 200
    assert message in LLMatcher.validate_grammar(grammar) and LLMatcher.validate_grammar('start: "a"') == ""


def test_options_of_a_schema(tokenizer):
    def taken(text, **options):
        schema = {"type": "array", "items": {"enum": ["a"]}, "x-guidance": options}
        matcher = LLMatcher(tokenizer, grammar_from("json", schema))
        return matcher.try_consume_tokens(list(text)) == len(text)

    assert taken(b'["a", "a"]') and not taken(b'["a", "a"]', whitespace_flexible=False)
    assert taken(b'["a","a"]', whitespace_flexible=False)
    assert taken(b'["a", "a"]', whitespace_flexible=False, item_separator=", ")
    assert taken(b'["a", "a"]', whitespace_pattern=" ?") and not taken(b'["a",  "a"]', whitespace_pattern=" ?")


def test_kinds_of_grammars(tokenizer):
    matcher = LLMatcher(tokenizer, grammar_from("choice", '["yes", "no"]'))
    assert matcher.consume_tokens(list(b"no")) and matcher.is_stopped()
    assert not matcher.consume_token(120) and matcher.get_error() == "token 120 is not allowed by the grammar"
    assert LLMatcher(tokenizer, grammar_from("regex", "a/b")).consume_tokens(list(b"a/b"))
    with pytest.raises(ValueError, match="format is 'x', but it must be lark"):
        grammar_from("x", "")
    with pytest.raises(ValueError):
        grammar_from("json", "{")


def test_a_batch(tokenizer):
    matchers = [LLMatcher(tokenizer, LLMatcher.grammar_from_regex(r)) for r in ("[ab]", "c", "[", "de?")]
    matchers[3].consume_tokens([100, EOS])
    bitmask = helpers.allocate_token_bitmask(5, 270)
    helpers.fill_next_token_bitmask_par(LLExecutor(), list(zip(matchers, (3, 0, 1, 4), strict=True)), bitmask)
    rows = [allowed(row.tobytes()) for row in bitmask]
    assert [rows[3], rows[0], rows[1], rows[4]] == [[97, 98], [99], [EOS], [EOS]] and (bitmask[2] == -1).all()
    assert helpers.consume_token_par(LLExecutor(), [(matchers[0], 97), (matchers[1], 97)]) == [True, False]
    logits = numpy.zeros((5, 270), numpy.float32)
    helpers.apply_token_bitmask_inplace(logits, bitmask)
    assert numpy.isfinite(logits[0]).nonzero()[0].tolist() == [99]


def test_it_takes_llguidances_place():
    code = (
        "import formwork.compat.llguidance as ours; ours.install(); import llguidance, llguidance.hf, "
        "llguidance.torch; from llguidance.numpy import fill_next_token_bitmask; assert llguidance is ours"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
