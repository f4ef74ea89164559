import asyncio
import json
import pickle
import subprocess
import sys
import threading

import pytest
from conftest import EOS, VOCAB

from formwork.grammar import (
    CancelFlag,
    CompileError,
    GrammarCompiler,
    GrammarMatcher,
    TokenizerInfo,
    compile_async,
)

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 3}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def accepts(grammar, text):
    matcher = GrammarMatcher(grammar)
    return matcher.accept_string(text) and matcher.is_completed()


@pytest.mark.parametrize(
    "method, arguments, options, right, wrong",
    [
        ("json_schema", [SCHEMA], {}, '{"name": "Ann", "age": 3}', '{"name": "Anna", "age": 3}'),
        ("json_schema", [json.dumps(SCHEMA)], {"whitespace": "compact"}, '{"name":"A","age":3}', '{"name": "A","age":3}'),
        ("json_schema", [SCHEMA], {"property_order": "any"}, '{"age": 3, "name": "A"}', '{"age": 3}'),
        ("json_object", [], {}, '{"a": [1]}', "[1]"),
        ("regex", ["a{2,3}"], {}, "aaa", "a"),
        ("choice", [["yes", "nö"]], {}, "nö", "n"),
        ("ebnf", ['root ::= "a" root | "b"'], {}, "aab", "aa"),
        ("ebnf", ['top ::= "a"', "top"], {}, "a", "b"),
        ("lark", ['start: "a"+'], {}, "aa", "b"),
        ("grammar", ['start: "a"+'], {}, "aa", "b"),
        ("grammar", ['root ::= "a"'], {}, "a", "b"),
        (
            "structural_tag",
            [{"type": "structural_tag", "format": {"type": "const_string", "value": "x"}}],
            {},
            "x",
            "y",
        ),
    ],
)
def test_each_kind(compiler, method, arguments, options, right, wrong):
    grammar = getattr(compiler, f"compile_{method}")(*arguments, **options)
    again = asyncio.run(compile_async(compiler, method, *arguments, **options))
    restored = pickle.loads(pickle.dumps(grammar))
    for each in (grammar, again, restored):
        assert accepts(each, right) and not accepts(each, wrong)
    assert grammar.compiler is compiler and grammar.tokenizer_info == compiler.tokenizer_info
    assert restored.tokenizer_info == compiler.tokenizer_info
    assert grammar.memory_size_bytes > 0


def test_a_pydantic_model_is_asked_for_its_schema(compiler):
    class Model:
        @classmethod
        def model_json_schema(cls):
            return SCHEMA

    assert accepts(compiler.compile_json_schema(Model), '{"name": "A", "age": 1}')


@pytest.mark.parametrize(
    "call, expected",
    [
        (lambda c: c.compile_regex("a\n(b"), {"kind": "regex", "line": 2, "column": 1, "offset": 2}),
        (lambda c: c.compile_json_schema('{"type": }'), {"kind": "json_syntax", "line": 1, "column": 10}),
        (
            lambda c: c.compile_json_schema({"properties": {"a": {"type": "text"}}}),
            {"kind": "json_schema", "pointer": "/properties/a/type", "line": None},
        ),
        (lambda c: c.compile_json_schema({}, strictt=True), {"kind": "option", "option": "strictt"}),
        (lambda c: c.compile_json_schema({}, strict=3), {"kind": "option", "option": "strict"}),
        (lambda c: c.compile_json_schema(False), {"kind": "no_value"}),
        (lambda c: c.compile_choice([]), {"kind": "empty_choice"}),
        (lambda c: c.compile_ebnf("root ::= a"), {"kind": "grammar", "line": 1, "column": 10}),
        (lambda c: c.compile_structural_tag({}), {"kind": "structural_tag", "pointer": ""}),
        (lambda c: c.compile_regex("a" * (1 << 20) + "a"), {"kind": "limit", "limit": "max_source_bytes", "max": 1 << 20}),
    ],
)
def test_errors_have_their_place(compiler, call, expected):
    with pytest.raises(CompileError) as raised:
        call(compiler)
    assert {name: getattr(raised.value, name) for name in expected} == expected
    assert raised.value.message and raised.value.message in str(raised.value)
    assert isinstance(raised.value, ValueError)
    copy = pickle.loads(pickle.dumps(raised.value))
    assert copy.kind == raised.value.kind and str(copy) == str(raised.value)


def test_what_is_no_json_is_refused(compiler):
    with pytest.raises(TypeError, match="schema must be JSON"):
        compiler.compile_json_schema({"const": {1, 2}})
    with pytest.raises(ValueError, match="schema must be JSON"):
        compiler.compile_json_schema({"const": float("nan")})
    with pytest.raises(TypeError, match="tag must be JSON"):
        compiler.compile_structural_tag(object())
    with pytest.raises(TypeError):
        compiler.compile_regex(3)
    with pytest.raises(ValueError, match="kind is 'xml'"):
        asyncio.run(compile_async(compiler, "xml", ""))


def test_a_compilation_is_cancelled(compiler):
    cancel = CancelFlag()
    assert not cancel.is_cancelled()
    cancel.cancel()
    with pytest.raises(CompileError) as raised:
        compiler.compile_regex("never seen before", cancel=cancel)
    assert raised.value.kind == "cancelled"


def test_what_is_known_is_not_compiled_again(info):
    compiler = GrammarCompiler(info)
    for _ in range(3):
        compiler.compile_regex("abc")
    assert compiler.num_compilations == 1
    assert compiler.get_cache_size_bytes() > 0
    compiler.clear_cache()
    compiler.compile_regex("abc")
    assert compiler.num_compilations == 2


def test_a_compiler_is_pickled_with_its_options(info):
    compiler = pickle.loads(pickle.dumps(GrammarCompiler(info, cache_bytes=1 << 24, any_escapes=True)))
    assert compiler.tokenizer_info == info
    assert compiler.__getnewargs_ex__()[1]["cache_bytes"] == 1 << 24
    assert compiler.__getnewargs_ex__()[1]["any_escapes"] is True
    with pytest.raises(TypeError, match="pickle its compiled_grammar"):
        pickle.dumps(GrammarMatcher(compiler.compile_regex("a")))


def test_strings_under_a_constraint_have_any_escapes_where_asked(info):
    schema = {"properties": {"é😀": {"pattern": "^[a-c]+$"}}, "additionalProperties": False}
    texts = ['{"é😀": "abc"}', r'{"\u00e9\uD83D\ude00": "a\u0062c"}', r'{"é😀": "a\u0064"}']
    for any_escapes, expected in [(False, [True, False, False]), (True, [True, True, False])]:
        compiler = GrammarCompiler(info, any_escapes=any_escapes)
        grammar = compiler.compile_json_schema(schema)
        assert [GrammarMatcher(grammar).accept_string(text) for text in texts] == expected


def test_many_threads_share_a_compiler_and_a_matcher(info):
    compiler = GrammarCompiler(info)
    shared = GrammarMatcher(compiler.compile_json_schema(SCHEMA))
    expected = shared.next_token_ids()
    failures = []

    def work(number):
        try:
            for turn in range(20):
                grammar = compiler.compile_regex(f"a{{{turn % 5}}}b{number}")
                assert accepts(grammar, "a" * (turn % 5) + f"b{number}")
                assert shared.next_token_ids() == expected
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_vocabularies(tmp_path):
    with pytest.raises(ValueError, match="stop_token_ids is empty"):
        TokenizerInfo([b"a"], stop_token_ids=[])
    with pytest.raises(ValueError, match="vocab is empty"):
        TokenizerInfo([], stop_token_ids=[0])
    with pytest.raises(ValueError, match="stop_token_ids holds 7, but vocab_size is 1"):
        TokenizerInfo([b"a"], stop_token_ids=[7])
    with pytest.raises(TypeError):
        TokenizerInfo(["a", 3], stop_token_ids=[0])
    info = TokenizerInfo(VOCAB, stop_token_ids=[EOS])
    assert pickle.loads(pickle.dumps(info)) == info != TokenizerInfo(VOCAB, stop_token_ids=[0])
    assert info.token_bytes(256) == b"true" and info.vocab_size == info.num_tokens == len(VOCAB)
    for wrong in (-1, len(VOCAB)):
        with pytest.raises(IndexError, match=rf"token_id is {wrong}"):
            info.token_bytes(wrong)
    with pytest.raises(ValueError, match="tokenizer.json"):
        TokenizerInfo.from_tokenizer_json("{}")
    with pytest.raises(ValueError):
        TokenizerInfo.from_path(tmp_path)
    with pytest.raises(TypeError, match="tokenizer must be a fast tokenizer"):
        TokenizerInfo.from_huggingface(object())
    with pytest.raises(TypeError, match="encoding must be a tiktoken.Encoding"):
        TokenizerInfo.from_tiktoken(object())


TOKENIZER_JSON = json.dumps(
    {
        "version": "1.0",
        "added_tokens": [
            {"id": 2, "content": "</s>", "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        ],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {"a": 0, "Ġ": 1}, "merges": []},
    }
)


def test_a_tokenizer_json_gives_bytes():
    config = json.dumps({"eos_token": "</s>"})
    info = TokenizerInfo.from_tokenizer_json(TOKENIZER_JSON, config=config, vocab_size=8)
    assert info.decoded_vocab() == [b"a", b" ", b"</s>"]
    assert (info.vocab_size, info.stop_token_ids, info.special_token_ids) == (8, [2], [2])
    own = TokenizerInfo.from_tokenizer_json(TOKENIZER_JSON.encode(), stop_token_ids=[0])
    assert own.stop_token_ids == [0]


def test_tokenizers_are_known_by_what_they_have():
    class Tokenizer:
        def to_str(self):
            return TOKENIZER_JSON

    class Fast:
        backend_tokenizer = Tokenizer()
        eos_token_id = 2

    class Encoding:
        _mergeable_ranks = {b"a": 0, b" ": 1}
        _special_tokens = {"</s>": 2}
        n_vocab = 3
        eot_token = 2

    assert TokenizerInfo.from_huggingface(Fast()).stop_token_ids == [2]
    with pytest.raises(ValueError, match="names no eos_token"):
        TokenizerInfo.from_huggingface(Tokenizer())
    info = TokenizerInfo.from_tiktoken(Encoding())
    assert info == TokenizerInfo.from_huggingface(Tokenizer(), stop_token_ids=[2])


def test_it_imports_neither_torch_nor_transformers_nor_numpy():
    code = "import sys, formwork.grammar as g; print(sorted({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
