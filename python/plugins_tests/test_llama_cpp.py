"""llama.cpp's own completion with the built-in model, written as GGUF."""

import numpy
import pytest
from conftest import STOP, is_valid

from formwork.grammar import GrammarCompiler

llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

from formwork.plugins.llama_cpp import LogitsProcessor, tokenizer_info  # noqa: E402

@pytest.fixture(scope="module")
def llama(gguf_path):
    return llama_cpp.Llama(model_path=gguf_path, n_ctx=512, n_threads=1, verbose=False)


@pytest.fixture(scope="module")
def compiler(llama):
    info = tokenizer_info(llama)
    assert info.vocab_size == 4096 and STOP in info.stop_token_ids
    return GrammarCompiler(info)


def test_a_completion_is_what_the_grammar_allows(llama, compiler):
    schema = {
        "type": "object",
        "properties": {"name": {"enum": ["Ann", "Bo"]}, "age": {"type": "integer", "maximum": 99, "minimum": 1}},
        "required": ["name", "age"],
    }
    processor = LogitsProcessor(compiler.compile_json_schema(schema, strict=True, whitespace="compact"))
    processors = llama_cpp.LogitsProcessorList([processor])
    for _ in range(2):
        processor.reset()
        answer = llama("A person: ", max_tokens=60, temperature=0.0, logits_processor=processors)
        assert processor.error is None
        choice = answer["choices"][0]
        assert choice["finish_reason"] == "stop" and is_valid(schema, choice["text"]), choice


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_error_ends_the_text(llama, compiler):
    processor = LogitsProcessor(compiler.compile_regex("[a-z]{40}"))
    # As with a draft model: a token that the processor was not asked about.
    processor(numpy.array([1, 2, 3], numpy.intc), numpy.zeros(4096, numpy.float32))
    answer = llama(
        "A person: ", max_tokens=60, temperature=0.0, logits_processor=llama_cpp.LogitsProcessorList([processor])
    )
    assert "one call of generate" in str(processor.error)
    assert answer["choices"][0]["text"] == "" and answer["choices"][0]["finish_reason"] == "stop"
