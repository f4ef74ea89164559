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
