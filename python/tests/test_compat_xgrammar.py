"""XGrammar's API by `formwork.compat.xgrammar`: its tutorial, step by step, and what stands beside it."""

import json
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("pydantic", reason="pydantic is not installed: formwork.compat.xgrammar is not tested")

import formwork.compat.xgrammar as xgr  # noqa: E402
import numpy  # noqa: E402
from formwork.compat.xgrammar.testing import _is_grammar_accept_string as accepts  # noqa: E402

# One token for each byte, by its code up to 127.
SPELLED = [bytes([byte]) for byte in range(256)] + ["true", "</s>"]
EOS = 257
TOKENIZER = pathlib.Path(__file__).resolve().parents[2] / "builtin-model/model/tokenizer.json"


@pytest.fixture(scope="module")
def info():
    return xgr.TokenizerInfo(SPELLED, vocab_size=270)


@pytest.fixture(scope="module")
def compiler(info):
    return xgr.GrammarCompiler(info)


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="torch is not installed: its tensors are not tested")


def test_torch_is_not_imported():
    code = "import sys, formwork.compat.xgrammar as x; x.install(); assert not {'transformers'} & sys.modules.keys()"
    subprocess.check_call([sys.executable, "-c", code])
    code = "import sys, formwork.compat.xgrammar; assert not {'torch', 'transformers'} & sys.modules.keys()"
    subprocess.check_call([sys.executable, "-c", code])


def test_a_vocabulary_is_decoded():
    fallback = xgr.TokenizerInfo(["<0x0A>", "\u2581a", "</s>"], xgr.VocabType.BYTE_FALLBACK)
    assert fallback.decoded_vocab == [b"\n", b" a", b"</s>"]
    level = xgr.TokenizerInfo(["Ġa", "Ċ", "Ã©", "x"], xgr.VocabType.BYTE_LEVEL, stop_token_ids=3)
    assert level.decoded_vocab == [b" a", b"\n", "é".encode(), b"x"]
    assert (level.stop_token_ids, level.vocab_size, level.vocab_type) == ([3], 4, xgr.VocabType.BYTE_LEVEL)
    padded = xgr.TokenizerInfo(["a", "", "</s>"], vocab_size=5)
    assert padded.special_token_ids == [1, 3, 4]


def test_a_vocabulary_without_a_stop_token():
    # 32 tokens fill a word: the stop token that the engine needs has no bit of its own.
    letters = [chr(97 + n % 26) * (1 + n // 26) for n in range(32)]
    info = xgr.TokenizerInfo(letters)
    assert info.stop_token_ids == []
    matcher = xgr.GrammarMatcher(xgr.GrammarCompiler(info).compile_regex("[ab]|ff"))
    bitmask = numpy.full((1, 1), -1, numpy.int32)
    assert matcher.fill_next_token_bitmask(bitmask)
    allowed = [letters[n] for n in range(32) if int(bitmask[0, 0]) >> n & 1]
    assert sorted(allowed) == ["a", "b", "f", "ff"]
    assert matcher.accept_token(0) and matcher.is_completed() and not matcher.is_terminated()
    matcher.fill_next_token_bitmask(bitmask)
    assert bitmask[0, 0] == 0 and matcher.stop_token_ids == []
    with pytest.raises(IndexError, match="there are 32"):
        matcher.accept_token(32)


def test_the_tutorial(info, compiler, torch):
    matcher = xgr.GrammarMatcher(compiler.compile_builtin_json_grammar())
    bitmask = xgr.allocate_token_bitmask(1, info.vocab_size)
    assert tuple(bitmask.shape) == xgr.get_bitmask_shape(1, 270) == (1, 9)
    assert bitmask.dtype == xgr.bitmask_dtype == torch.int32
    for sign in '{"a": true}':
        logits = torch.zeros(1, 270)
        assert matcher.fill_next_token_bitmask(bitmask)
        xgr.apply_token_bitmask_inplace(logits, bitmask)
        assert logits[0, ord(sign)] == 0 and logits[0, 1].isneginf()
        assert matcher.accept_token(ord(sign))
    assert matcher.is_completed() and matcher.accept_token(EOS) and matcher.is_terminated()
    assert not matcher.accept_token(EOS)
    with pytest.raises(RuntimeError, match="at its end"):
        matcher.fill_next_token_bitmask(bitmask)
    matcher.reset()
    assert matcher.accept_string('{"a"') and not matcher.accept_string("}")
    matcher.rollback(1)
    assert matcher.accept_string('{ "a"\t:\n\n1 }') and matcher.is_completed()
    truth = xgr.GrammarMatcher(compiler.compile_regex("true"))
    assert truth.find_jump_forward_string() == "true"


def test_the_tutorial_of_transformers(torch):
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed: generate is not tested"
    )
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(TOKENIZER))
    width = len(tokenizer) + 7
    stop = tokenizer.convert_tokens_to_ids("<|im_end|>")
    info = xgr.TokenizerInfo.from_huggingface(tokenizer, vocab_size=width, stop_token_ids=stop)
    assert (info.vocab_size, info.stop_token_ids, info.vocab_type) == (
        width,
        [stop],
        xgr.VocabType.BYTE_LEVEL,
    )
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=width,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        eos_token_id=stop,
        pad_token_id=stop,
        bos_token_id=None,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}, "n": {"enum": [1, 20, 300]}},
        "required": ["ok", "n"],
    }
    compiler = xgr.GrammarCompiler(info)
    grammar = compiler.compile_json_schema(schema, any_whitespace=False)
    prompt = torch.tensor([tokenizer.encode("An answer:"), tokenizer.encode("An answer;")])
    processor = xgr.contrib.hf.LogitsProcessor([grammar, compiler.compile_regex("yes|no")])
    written = model.generate(prompt, max_new_tokens=60, do_sample=True, logits_processor=[processor])
    texts = [tokenizer.decode(row, skip_special_tokens=True) for row in written[:, prompt.shape[1] :]]
    value = json.loads(texts[0].replace("<|im_end|>", ""))
    assert value.keys() == {"ok", "n"} and isinstance(value["ok"], bool) and value["n"] in (1, 20, 300)
    assert texts[1].replace("<|im_end|>", "") in ("yes", "no")
    with pytest.raises(TypeError, match="not str"):
        xgr.contrib.hf.LogitsProcessor("a")


@pytest.mark.parametrize(
    "options, right, wrong",
    [
        ({}, ['{"a":1}', '{"a" :  1}'], ['{"a":1, "b": 2}']),
        ({"strict_mode": False}, ['{"a": 1, "b": 2}'], ["[]"]),
        ({"any_whitespace": False}, ['{"a": 1}'], ['{"a":1}']),
        ({"any_whitespace": False, "separators": (",", ":")}, ['{"a":1}'], ['{"a": 1}']),
        ({"max_whitespace_cnt": 1}, ['{"a":1}', '{"a": 1}'], ['{"a":  1}']),
        ({"any_whitespace": False, "indent": 2}, ['{\n  "a": 1\n}'], ['{"a": 1}', '{\n "a": 1\n}']),
        ({"indent": 2}, ['{"a":1}', '{\n "a": 1 }'], [' {"a":1}', '{"a":1}\n']),
    ],
)
def test_options_of_json(compiler, options, right, wrong):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    grammar = compiler.compile_json_schema(schema, **options)
    for text, expected in [(t, True) for t in right] + [(t, False) for t in wrong]:
        matcher = xgr.GrammarMatcher(grammar, terminate_without_stop_token=True)
        assert (matcher.accept_string(text) and matcher.is_terminated()) is expected, text


@pytest.mark.parametrize(
    "schema, right, wrong",
    [
        # Both branches allow it, so the schema doesn't, though only one of them names it.
        (
            {"oneOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}}]},
            ['{"b": 1}', "{}"],
            ['{"a": 1}', '{"c": 1}'],
        ),
        # What is denied stays what it was, through references too.
        (
            {
                "properties": {"a": {}, "b": {}},
                "not": {"$ref": "#/$defs/one"},
                "$defs": {"one": {"properties": {"a": {"const": 1}}, "required": ["a"]}},
            },
            ['{"a": 2, "b": 1}', "{}"],
            ['{"a": 1}', '{"a": 1, "b": 1}', '{"c": 1}'],
        ),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "type": "object",
                "properties": {"a": {}, "child": {"$ref": "#"}},
                "if": {"$ref": "#/definitions/const"},
                "then": {"required": ["child"]},
                "definitions": {
                    "const": {"properties": {"const": {"$ref": "#/definitions/two"}}, "required": ["a"]},
                    "two": {"properties": {"a": {}}},
                },
            },
            ["{}", '{"a": 1, "child": {}}', '{"child": {}}'],
            ['{"a": 1}', '{"child": {"a": 1}}', '{"child": {"z": 1}}'],
        ),
    ],
)
def test_strict_mode_allows_nothing_that_the_schema_refuses(compiler, schema, right, wrong):
    grammar = xgr.Grammar.from_json_schema(schema)
    for text, expected in [(t, True) for t in right] + [(t, False) for t in wrong]:
        assert accepts(grammar, text) is expected, text


def test_grammars_and_batches(compiler, torch):
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
    xgr.BatchGrammarMatcher.batch_rollback(matchers[:2], [2, 1])
    assert [m.is_completed() for m in matchers] == [False, False, True]
    xgr.reset_token_bitmask(bitmask)
    assert (bitmask == -1).all()
    own = xgr.GrammarMatcher(grammars[0], override_stop_tokens=98, default_temperature=0.5)
    assert own.accept_token(97) and not own.accept_token(EOS) and own.fork().accept_token(98)
    assert not own.is_terminated()
    temperatures = torch.zeros(2)
    xgr.BatchGrammarMatcher.batch_fill_temperature([own, matchers[1]], temperatures)
    assert temperatures.tolist() == [0.5, -1]
    with pytest.raises(RuntimeError, match="num_tokens is 9"):
        matchers[0].rollback(9)


def test_a_mask_on_rows_that_are_not_contiguous_and_logits_beyond_it(torch):
    logits = torch.zeros(2, 71)[:, :70]
    bitmask = torch.zeros(2, 2, dtype=torch.int32)
    with pytest.warns(UserWarning, match="left unmasked"):
        xgr.apply_token_bitmask_inplace(logits, bitmask, indices=[1])
    assert logits[0].isfinite().all() and logits[1].isfinite().sum() == 6
    xgr.apply_token_bitmask_inplace(logits[0], bitmask[0], vocab_size=3)
    assert logits[0].isfinite().sum() == 67
    with pytest.raises(ValueError, match="bitmask on meta"):
        xgr.apply_token_bitmask_inplace(logits, bitmask.to("meta"), vocab_size=3)
    with pytest.raises(ValueError, match="backend is 'gpu'"):
        xgr.apply_token_bitmask_inplace(logits, bitmask, backend="gpu")
    bools = xgr.testing.bitmask_to_bool_mask(torch.tensor([[5, -(1 << 31)]], dtype=torch.int32))
    assert bools.nonzero()[:, 1].tolist() == [0, 2, 63]
    assert xgr.testing.bool_mask_to_bitmask(bools).tolist() == [[5, -(1 << 31)]]


def test_a_tree_of_drafted_tokens(compiler, torch):
    #      root a -> b -> d
    #             \\-> x     \\ (sibling) e
    matcher = xgr.GrammarMatcher(compiler.compile_regex("ab(d|e)|ac"))
    assert matcher.accept_token(ord("a"))
    child, sibling = torch.tensor([1, 3, -1, -1, -1]), torch.tensor([-1, 2, -1, 4, -1])
    tokens = torch.tensor([ord(sign) for sign in "abxde"])
    bitmask = torch.full((5, 9), -1, dtype=torch.int32)
    assert matcher.traverse_draft_tree(child, sibling, tokens, bitmask)
    rows = xgr.testing.bitmask_to_bool_mask(bitmask, 270)
    allowed = [row.nonzero().flatten().tolist() for row in rows]
    assert allowed[0] == [ord("b"), ord("c")] and allowed[1] == [ord("d"), ord("e")]
    assert allowed[2] == list(range(270)) and allowed[3] == allowed[4] == [EOS]
    assert matcher.accept_string("c")


def test_grammars_one_after_the_other_and_any_of_them():
    letters, digits = (
        xgr.Grammar.from_regex("[a-z]+"),
        xgr.Grammar.from_ebnf("n ::= [0-9]+", root_rule_name="n"),
    )
    pair = xgr.Grammar.from_json_schema({"enum": [[1], [2]]})
    both = xgr.Grammar.concat(letters, xgr.Grammar.union(digits, pair))
    for text, expected in [("ab12", True), ("ab[2]", True), ("ab", False), ("12", False), ("ab[3]", False)]:
        assert accepts(both, text) is expected, text
    again = xgr.Grammar.deserialize_json(both.serialize_json())
    assert accepts(again, "z[1]") and str(again) == str(both)
    with pytest.raises(TypeError, match="not str"):
        xgr.Grammar.union(letters, "a")
    with pytest.raises(ValueError, match="needs a grammar"):
        xgr.Grammar.concat()
    compact = xgr.Grammar.from_json_schema({"type": "null"}, any_whitespace=False)
    with pytest.raises(NotImplementedError, match="any_whitespace=False"):
        accepts(xgr.Grammar.union(compact), "null")


def test_json_in_lark_has_white_space_anywhere():
    source = 'start: "x" %json {"type": "object"} ";" | "y" %json true | "z" %json {}'
    grammar = xgr.Grammar.from_lark(source)
    for text in ('x{ "a" :\t1\n};', "y[1 ,\n\n\n2]", "z{  }"):
        assert accepts(grammar, text), text
    assert not accepts(grammar, 'x {"a": 1};') and str(grammar) == source
    # A schema that says how it is written is written so, and errors are where they are in the source.
    own = xgr.Grammar.from_lark('start: %json {"x-guidance": {"whitespace_flexible": false}}')
    assert accepts(own, "[1,2]") and not accepts(own, "[1, 2]")
    with pytest.raises(RuntimeError) as raised:
        xgr.Grammar.from_lark('start: %json {"type": "null"} [')
    assert (raised.value.line, raised.value.column) == (1, 31)


def test_named_grammars_of_lark():
    named = {
        "pair": 'start: "@x" @item /@[\\/]x/ @item // @none\n',
        "item": xgr.Grammar.from_regex("[0-9/]+"),
        "flag": xgr.Grammar.from_json_schema({"type": "boolean"}),
    }
    grammar = xgr.Grammar.from_lark("start: @pair | @flag", named_grammars=named)
    assert accepts(grammar, "@x1/2@/x34") and accepts(grammar, "true") and not accepts(grammar, "@x1@/x")
    with pytest.raises(RuntimeError, match="circular named grammar reference: @a -> @b -> @a"):
        xgr.Grammar.from_lark("start: @a", named_grammars={"a": "start: @b", "b": "start: @a"})
    with pytest.raises(RuntimeError, match="unknown named grammar @b"):
        xgr.Grammar.from_lark("start: @b", named_grammars={"a": 'start: "a"'})
    with pytest.raises(TypeError, match="must be a dictionary"):
        xgr.Grammar.from_lark("start: @b", named_grammars=["b"])
    with pytest.raises(NotImplementedError, match="'a' must be made from"):
        xgr.Grammar.from_lark("start: @a", named_grammars={"a": xgr.Grammar.from_ebnf('root ::= "a"')})


def test_serialized_objects_come_back(info, compiler):
    again = xgr.TokenizerInfo.deserialize_json(info.serialize_json())
    assert again.decoded_vocab == info.decoded_vocab and again.dump_metadata() == info.dump_metadata()
    metadata = xgr.TokenizerInfo.from_vocab_and_metadata(SPELLED, info.dump_metadata())
    assert metadata.serialize_json() == info.serialize_json()
    text = compiler.compile_regex("[ab]").serialize_json()
    grammar = xgr.CompiledGrammar.deserialize_json(text, again)
    assert xgr.GrammarMatcher(grammar).accept_token(ord("b"))
    with pytest.raises(xgr.DeserializeFormatError, match="another vocabulary"):
        xgr.CompiledGrammar.deserialize_json(text, xgr.TokenizerInfo(["a", "</s>"]))
    read = xgr.Grammar.deserialize_json
    with pytest.raises(xgr.InvalidJSONError, match="no JSON"):
        read("{")
    with pytest.raises(xgr.DeserializeVersionError, match="has version 'v16'"):
        read('{"__VERSION__": "v16"}')
    with pytest.raises(xgr.DeserializeFormatError, match="of a 'tokenizer_info'"):
        read(info.serialize_json())
    version = json.dumps(xgr.get_serialization_version())
    for fields in (
        '{"kind": "regex", "source": [1], "options": {}}',
        '{"kind": "union", "source": ["a"], "options": {}}',
    ):
        with pytest.raises(xgr.DeserializeFormatError):
            read(f'{{"kind": "grammar", "grammar": {fields}, "__VERSION__": {version}}}')


def test_errors_are_xgrammars_and_say_where(compiler):
    with pytest.raises(RuntimeError) as caught:
        compiler.compile_regex("a(")
    assert (caught.value.line, caught.value.column) == (1, 2)
    with pytest.raises(RuntimeError, match="line 1, column"):
        xgr.Grammar.from_ebnf("root ::= (")
    with pytest.raises(xgr.InvalidJSONError):
        xgr.Grammar.from_json_schema("{")
    with pytest.raises(ValueError, match="not int"):
        xgr.Grammar.from_json_schema(1)
    xgr.Grammar.from_ebnf("root ::= Token(50000)")  # of a vocabulary that isn't known yet
    warm = xgr.GrammarMatcher(compiler.compile_lark('start: a\na[temperature=0.2]: "x"'))
    with pytest.raises(NotImplementedError, match="own temperature"):
        warm.temperature
    with pytest.raises(RuntimeError, match="line 1, column 7: attribute `capture`"):
        xgr.Grammar.from_lark("start[capture=1]: /a/")


CAPTURED = [
    ('start: "a" v "b"\nv[capture]: /[0-9]+/', b"a123b", [("v", b"123")]),
    (
        'start: outer\nouter[capture="o"]: "x" inner "!"\ninner[capture="i"]: /[a-z]+/',
        b"xabc!",
        [("i", b"abc"), ("o", b"xabc!")],
    ),
    (
        'start: list\nlist[capture]: ITEM "," list | ITEM\nITEM: /[0-9]+/',
        b"1,22",
        [("list", b"22"), ("list", b"1,22")],
    ),
    (
        'start: tool* tail\ntail: TEXT\nhead[lazy]: TEXT "<call>"\ntool: head arg "</call>"\n'
        "arg[capture]: /[0-9]+/\nTEXT: /(\\n|.)*/",
        b"before<call>42</call>mid<call>7</call>after",
        [("arg", b"42"), ("arg", b"7")],
    ),
    ('start: "a" v\nv[capture]: %json {"type": "array"}', b"a[1, [2]]", [("v", b"[1, [2]]")]),
    ('start: "a" v\nv[capture]: /[0-9]*/', b"a", [("v", b"")]),
    # What ends a text by `stop` is no part of what is around it; by `suffix` it is.
    (
        'start[capture="all"]: a b "z"\na[capture, stop="!", stop_capture="mark"]: /[a-z!]*/\nb[suffix=/;+/]: /[a-z]*/',
        b"xy!k;z",
        [("mark", b"!"), ("a", b"xy"), ("all", b"xyk;z")],
    ),
]


@pytest.mark.parametrize("source, text, expected", CAPTURED)
def test_captures(compiler, source, text, expected):
    matcher = xgr.GrammarMatcher(compiler.compile_lark(source))
    assert matcher.get_captures() == []
    for byte in text:
        assert matcher.accept_token(byte)
    assert matcher.get_captures() == expected
    other = matcher.fork()
    matcher.rollback(len(text))
    assert matcher.accept_string(text) and matcher.get_captures() == expected
    matcher.reset()
    assert matcher.get_captures() == [] and other.get_captures() == expected


def test_captures_that_are_not_served_say_so(compiler):
    tokens = xgr.GrammarMatcher(compiler.compile_lark("start: a\na[capture]: <[97]>"))
    with pytest.raises(NotImplementedError, match="named by id"):
        tokens.get_captures()
    matcher = xgr.GrammarMatcher(compiler.compile_lark('start: a\na[capture]: "x"'))
    with pytest.raises(NotImplementedError, match="deduplicate"):
        matcher.get_captures(deduplicate=False)
    assert xgr.GrammarMatcher(compiler.compile_regex("a")).get_captures() == []


def test_the_depth_of_recursion_is_kept():
    assert xgr.get_max_recursion_depth() == 10_000
    with xgr.max_recursion_depth(20):
        assert xgr.get_max_recursion_depth() == 20
    assert xgr.get_max_recursion_depth() == 10_000
    with pytest.raises(RuntimeError, match="-1"):
        xgr.set_max_recursion_depth(-1)


def test_it_takes_the_place_of_xgrammar():
    code = (
        "import formwork.compat.xgrammar as ours; ours.install(); ours.install()\n"
        "import xgrammar; assert xgrammar is ours\n"
        "from xgrammar.structural_tag import TagFormat; assert TagFormat is ours.structural_tag.TagFormat\n"
        "import xgrammar.matcher; assert xgrammar.matcher.GrammarMatcher is ours.GrammarMatcher\n"
        "import sys, types; sys.modules['xgrammar'] = types.ModuleType('xgrammar')\n"
        "try: ours.install()\n"
        "except RuntimeError as error: print(error)\n"
    )
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert printed == "xgrammar was imported already: call install() before the first import of it\n"
