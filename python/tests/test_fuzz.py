"""Any call with any argument gives an answer or an exception of Python, and never ends the process.

FORMWORK_FUZZ_EXAMPLES sets how many calls are tried, 300 by default.
"""

import os

import numpy
from conftest import VOCAB
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from formwork.grammar import (
    CompiledGrammar,
    GrammarCompiler,
    GrammarMatcher,
    TokenizerInfo,
    accept_token_batch,
    apply_token_bitmask_inplace,
    fill_next_token_bitmask_batch,
)

INFO = TokenizerInfo(VOCAB, stop_token_ids=[260])
COMPILER = GrammarCompiler(INFO)
GRAMMAR = COMPILER.compile_json_schema({"type": "array", "items": {"type": "string"}})
SETTINGS = settings(
    max_examples=int(os.environ.get("FORMWORK_FUZZ_EXAMPLES", "300")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
EXPECTED = (TypeError, ValueError, IndexError, OverflowError, RuntimeError, BufferError, MemoryError)

DTYPES = ["i4", "u4", ">i4", "i8", "i2", "f2", "f4", "f8", "c8", "?", "S4", "O"]


@st.composite
def arrays(draw):
    shape = draw(st.lists(st.integers(0, 12), max_size=3))
    array = numpy.zeros(shape, draw(st.sampled_from(DTYPES)))
    cut = [
        slice(None, None, draw(st.sampled_from([1, 1, 1, 2, -1])))
        for _ in range(draw(st.integers(0, array.ndim)))
    ]
    array = numpy.asarray(array[tuple(cut)])
    if draw(st.booleans()) and array.ndim == 2:
        array = array.T
    array = numpy.asarray(array)
    array.flags.writeable = draw(st.booleans())
    return array


integers = st.one_of(st.integers(-3, 300), st.integers())
values = st.one_of(
    st.none(),
    st.booleans(),
    integers,
    st.floats(),
    st.text(),
    st.binary(max_size=80),
    arrays(),
    st.lists(integers, max_size=4),
    st.dictionaries(st.text(max_size=4), integers, max_size=3),
    st.sampled_from([INFO, COMPILER, GRAMMAR]),
    st.builds(lambda data: memoryview(bytearray(data)), st.binary(max_size=80)),
)
METHODS = [
    name
    for kind in (TokenizerInfo, GrammarCompiler, CompiledGrammar, GrammarMatcher)
    for name in dir(kind)
    # Writes where it is told to.
    if name != "unsafe_fill_next_token_bitmask" and (not name.startswith("_") or name == "__new__")
]


@SETTINGS
@given(st.data())
def test_any_call(data):
    matcher = GrammarMatcher(GRAMMAR)
    for _ in range(data.draw(st.integers(1, 4))):
        name = data.draw(st.sampled_from(METHODS))
        owner = data.draw(st.sampled_from([INFO, COMPILER, GRAMMAR, matcher]))
        if name == "__new__" or not hasattr(owner, name):
            owner, call = type(owner), type(owner)
        else:
            call = getattr(owner, name)
        if not callable(call):
            continue
        arguments = data.draw(st.lists(values, max_size=3))
        try:
            call(*arguments)
        except EXPECTED:
            pass


@SETTINGS
@given(arrays(), arrays(), st.lists(st.integers(-1, 5), max_size=4), st.integers(0, 4))
def test_any_memory(first, second, indices, count):
    matchers = [GrammarMatcher(GRAMMAR) for _ in range(count)]
    for call, arguments in [
        (apply_token_bitmask_inplace, (first, second)),
        (apply_token_bitmask_inplace, (first, second, indices)),
        (fill_next_token_bitmask_batch, (matchers, first)),
        (fill_next_token_bitmask_batch, (matchers, first, indices)),
        (accept_token_batch, (matchers, indices)),
        *[(matcher.fill_next_token_bitmask, (second, count)) for matcher in matchers],
    ]:
        try:
            call(*arguments)
        except EXPECTED:
            pass


FRAGMENTS = [
    "start: ", "root ::= ", "a", "b", "\n", " | ", "(", ")", "*", "+", "?", "{2,3}", "~2", '"', "'x'", "/[a-c]*/", "/(?=a)b/",
    "[^a]", "[a-z]", "<[3]>", "<|x|>", "%ignore / /", "%json ", '{"type": "object"}', "%lark {", "}", "@a", "[lazy]", "[max_tokens=2]",
    '[stop=";"]', "[max_chars=3]", "[capture]", ": ", " ::= ", "Token(1)", 'TagDispatch(("<a>", a), loop_after_dispatch=true)',
    "$", "^", "\\d", "\\", "é", "\x00", "\ud7ff", "&", "!", "-", "#", "//", '{"format": ', '{"type": "tag", "begin": "<", "content": ',
    '{"type": "any_text"}', ', "end": ">"}', '{"type": "json_schema", "json_schema": {}, "style": "qwen_xml"}', "true", "1e400", "\"\\ud800\"",
]  # fmt: skip
sources = st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join)
leaves = st.sampled_from(
    [True, False, {}, {"type": "string"}, {"type": ["object", "null"]}, {"enum": [1, "a", None, [1]]}, {"const": {}},
     {"pattern": "^a+$"}, {"format": "date"}, {"minimum": 3, "multipleOf": 2}, {"$ref": "#"}, {"$ref": "#/$defs/x"},
     {"maxLength": 2}, {"type": "nothing"}, {"minItems": -1}]
)  # fmt: skip
schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        *(st.builds(lambda x, key=key: {key: x}, inner) for key in ("items", "not", "if", "additionalProperties")),
        *(
            st.builds(lambda x, key=key: {key: x}, st.lists(inner, max_size=3))
            for key in ("oneOf", "anyOf", "allOf", "prefixItems")
        ),
        st.builds(
            lambda members, required: {"properties": members, "required": required, "type": "object"},
            st.dictionaries(st.sampled_from(["a", "b", "c/~", ""]), inner, max_size=3),
            st.lists(st.sampled_from(["a", "b", "z"]), max_size=2),
        ),
    ),
    max_leaves=8,
)
OPTIONS = {
    "whitespace": ["usual", "flexible", "compact", "wide", 1],
    "whitespace_pattern": ["[ \\n]*", "\\s?", "a", "("],
    "indent": [0, 2, 17, -1, "2"],
    "trimmed": [True, False, 1],
    "separators": [[",", ":"], [", ", " : "], [";", ":"], ","],
    "property_order": ["any", "schema", "none"],
    "strict": [True, False, "yes"],
    "draft": ["7", "2020-12", "1"],
    "limits": [{"max_mask_steps": 100}, {"max_nesting": 2}, {"x": 1}],
}
CALLS = ["accept", "string", "fill", "within", "rollback", "reset", "fork", "jump", "least", "ids", "validate"]


def compiled(data):
    """A grammar of any kind, or None where it is refused."""
    kind = data.draw(st.sampled_from(["lark", "ebnf", "regex", "grammar", "structural_tag", "json_schema", "choice"]))
    try:
        if kind == "json_schema":
            names = data.draw(st.lists(st.sampled_from(sorted(OPTIONS)), max_size=3))
            options = {name: data.draw(st.sampled_from(OPTIONS[name])) for name in names}
            return COMPILER.compile_json_schema(data.draw(schemas), **options)
        if kind == "structural_tag":
            style = data.draw(st.sampled_from(["json", "qwen_xml", "cohere_xml", "minimax_m3_xml", "kimi_k3_xml"]))
            content = {"type": "json_schema", "json_schema": data.draw(schemas), "style": style}
            tag = {"type": "tag", "begin": "<", "content": content, "end": data.draw(st.sampled_from([">", ""]))}
            return COMPILER.compile_structural_tag({"type": "structural_tag", "format": tag})
        if kind == "choice":
            return COMPILER.compile_choice(data.draw(st.lists(st.text(max_size=4), max_size=4)))
        return getattr(COMPILER, f"compile_{kind}", COMPILER.compile_lark)(data.draw(sources))
    except EXPECTED:
        return None


@SETTINGS
@given(st.data())
def test_any_grammar_and_way(data):
    grammar = compiled(data)
    if grammar is None:
        return
    matcher = GrammarMatcher(grammar)
    bitmask = numpy.zeros((1, (INFO.vocab_size + 31) // 32), numpy.int32)
    for _ in range(data.draw(st.integers(1, 12))):
        call = data.draw(st.sampled_from(CALLS))
        try:
            if call == "accept":
                allowed = matcher.next_token_ids()
                token = data.draw(st.sampled_from(allowed) if allowed else st.integers(0, 260))
                # What a mask allows is accepted, and nothing else.
                assert matcher.accept_token(token) is (token in allowed)
                other = data.draw(st.integers(0, 260))
                assert matcher.fork().accept_token(other) is (other in matcher.next_token_ids())
            elif call == "string":
                matcher.accept_string(data.draw(st.one_of(st.text(max_size=3), st.binary(max_size=3), sources)))
            elif call == "fill":
                matcher.fill_next_token_bitmask(bitmask)
            elif call == "within":
                matcher.fill_next_token_bitmask_within(bitmask, data.draw(st.integers(0, 40)))
            elif call == "rollback":
                matcher.rollback(data.draw(st.integers(0, 3)))
            elif call == "reset":
                matcher.reset()
            elif call == "fork":
                matcher = matcher.fork()
            elif call == "jump":
                assert matcher.fork().accept_string(matcher.find_jump_forward_string())
            elif call == "least":
                assert (matcher.min_tokens_to_complete() >= 1) is not matcher.is_terminated()
            elif call == "ids":
                matcher.next_token_ids()
            else:
                matcher.validate_tokens(data.draw(st.lists(st.integers(0, 260), max_size=4)))
        except EXPECTED:
            pass


@SETTINGS
@given(st.data())
def test_many_threads_at_once(data):
    from concurrent.futures import ThreadPoolExecutor

    grammar = compiled(data)
    if grammar is None:
        return
    shared = GrammarMatcher(grammar)

    def work(number):
        own = shared.fork()
        for matcher in (own, shared):
            try:
                allowed = matcher.next_token_ids()
                if allowed:
                    matcher.accept_token(allowed[number % len(allowed)])
                matcher.rollback()
            except EXPECTED:
                pass

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8)))
