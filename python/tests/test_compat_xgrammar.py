"""The workflow of XGrammar's tutorial by `formwork.compat.xgrammar`."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: formwork.compat.xgrammar is not tested")

import formwork.compat.xgrammar as xgr  # noqa: E402

# One token for each byte, by its code up to 127.
SPELLED = [bytes([byte]) for byte in range(256)] + ["true", "</s>"]
EOS = 257


@pytest.fixture(scope="module")
def info():
    return xgr.TokenizerInfo(SPELLED, vocab_size=270)


@pytest.fixture(scope="module")
def compiler(info):
    return xgr.GrammarCompiler(info)


def test_a_vocabulary_is_decoded():
    fallback = xgr.TokenizerInfo(["<0x0A>", "\u2581a", "</s>"], xgr.VocabType.BYTE_FALLBACK)
    assert fallback.decoded_vocab == [b"\n", b" a", b"</s>"]
    level = xgr.TokenizerInfo(["Ġa", "Ċ", "Ã©", "x"], xgr.VocabType.BYTE_LEVEL, stop_token_ids=3)
    assert level.decoded_vocab == [b" a", b"\n", "é".encode(), b"x"]
    assert (level.stop_token_ids, level.vocab_size, level.vocab_type) == ([3], 4, xgr.VocabType.BYTE_LEVEL)
    with pytest.raises(ValueError, match="stop_token_ids is empty"):
        xgr.TokenizerInfo(["a"])


def test_the_tutorial(info, compiler):
    matcher = xgr.GrammarMatcher(compiler.compile_builtin_json_grammar())
    bitmask = xgr.allocate_token_bitmask(1, info.vocab_size)
    assert tuple(bitmask.shape) == xgr.get_bitmask_shape(1, 270) == (1, 9)
    for sign in '{"a": true}':
        logits = torch.zeros(1, 270)
        assert matcher.fill_next_token_bitmask(bitmask)
        xgr.apply_token_bitmask_inplace(logits, bitmask)
        assert logits[0, ord(sign)] == 0 and logits[0, 1].isneginf()
        assert matcher.accept_token(ord(sign))
    assert matcher.is_completed() and matcher.accept_token(EOS) and matcher.is_terminated()
    assert not matcher.accept_token(EOS)
    matcher.reset()
    assert matcher.accept_string('{"a"') and not matcher.accept_string("}")
    matcher.rollback(1)
    assert matcher.accept_string('{ "a"\t:\n\n1 }') and matcher.is_completed()
    truth = xgr.GrammarMatcher(compiler.compile_regex("true"))
    assert truth.find_jump_forward_string() == "true"


@pytest.mark.parametrize(
    "options, right, wrong",
    [
        ({}, ['{"a":1}', '{"a" :  1}'], ['{"a":1, "b": 2}']),
        ({"strict_mode": False}, ['{"a": 1, "b": 2}'], ["[]"]),
        ({"any_whitespace": False}, ['{"a": 1}'], ['{"a":1}']),
        ({"any_whitespace": False, "separators": (",", ":")}, ['{"a":1}'], ['{"a": 1}']),
        ({"max_whitespace_cnt": 1}, ['{"a":1}', '{"a": 1}'], ['{"a":  1}']),
    ],
)
def test_options_of_json(compiler, options, right, wrong):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    grammar = compiler.compile_json_schema(schema, **options)
    for text, expected in [(t, True) for t in right] + [(t, False) for t in wrong]:
        matcher = xgr.GrammarMatcher(grammar, terminate_without_stop_token=True)
        assert (matcher.accept_string(text) and matcher.is_terminated()) is expected, text
    with pytest.raises(NotImplementedError, match="indent is 2"):
        compiler.compile_json_schema(schema, indent=2)


def test_grammars_and_batches(compiler):
    grammars = [
        compiler.compile_grammar('root ::= "a"'),
        compiler.compile_grammar(xgr.Grammar.from_lark('start: "b"')),
        compiler.compile_grammar(xgr.Grammar.from_regex("c")),
    ]
    matchers = [xgr.GrammarMatcher(g) for g in grammars]
    bitmask = xgr.allocate_token_bitmask(3, 270)
    xgr.BatchGrammarMatcher().batch_fill_next_token_bitmask(matchers, bitmask)
    logits = torch.zeros(3, 270)
    xgr.apply_token_bitmask_inplace(logits, bitmask, indices=[0, 2])
    assert logits.isfinite().sum(dim=1).tolist() == [1, 270, 1]
    assert xgr.BatchGrammarMatcher.batch_accept_token(matchers, [97, 97, 99]) == [True, False, True]
    assert xgr.BatchGrammarMatcher.batch_accept_string(matchers, ["", "b", "c"]) == [True, True, False]
    xgr.reset_token_bitmask(bitmask)
    assert (bitmask == -1).all()
    own = xgr.GrammarMatcher(grammars[0], override_stop_tokens=98)
    assert own.accept_token(97) and not own.accept_token(EOS) and own.fork().accept_token(98)
    assert not own.is_terminated()


def test_it_takes_the_place_of_xgrammar():
    code = (
        "import formwork.compat.xgrammar as ours; ours.install(); ours.install()\n"
        "import xgrammar; assert xgrammar is ours\n"
        "import sys, types; sys.modules['xgrammar'] = types.ModuleType('xgrammar')\n"
        "try: ours.install()\n"
        "except RuntimeError as error: print(error)\n"
    )
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert printed == "xgrammar was imported already: call install() before the first import of it\n"
