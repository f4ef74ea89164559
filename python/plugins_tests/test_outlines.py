"""Outlines' own generator over transformers and MLX-LM, with the built-in model."""

import json

import numpy
import pytest
from conftest import MODEL, is_valid
from outlines.generator import SteerableGenerator

import outlines
from formwork.plugins.outlines import LogitsProcessor

SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["Ann", "Bo"]}, "age": {"type": "integer", "maximum": 99, "minimum": 1}},
    "required": ["name", "age"],
}


@pytest.fixture(scope="module")
def model(tokenizer):
    from transformers import AutoModelForCausalLM

    return outlines.from_transformers(AutoModelForCausalLM.from_pretrained(MODEL), tokenizer)


def test_a_generator_of_transformers(model, compiler):
    processor = LogitsProcessor(compiler.compile_json_schema(SCHEMA, strict=True), model)
    generator = SteerableGenerator.from_processor(model, processor)
    for _ in range(2):
        text = generator("A person: ", max_new_tokens=60)
        assert is_valid(SCHEMA, text), text
    texts = generator.batch(["A person: ", "A person of another age: "], max_new_tokens=60)
    assert len(texts) == 2 and all(is_valid(SCHEMA, text) for text in texts)


def test_a_generator_of_mlx_lm(compiler):
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    from mlx_lm import load

    model = outlines.from_mlxlm(*load(MODEL))
    processor = LogitsProcessor(compiler.compile_json_schema(SCHEMA, strict=True), model)
    generator = SteerableGenerator.from_processor(model, processor)
    assert is_valid(SCHEMA, generator("A person: ", max_tokens=60))


def test_numpy_as_llama_cpp_has_it(compiler, tokens):
    processor = LogitsProcessor(compiler.compile_choice(["yes", "no"]), "numpy")
    ids, text = [7, 8], b""
    while not text.startswith((b"yes", b"no")):
        scores = processor(numpy.array(ids), numpy.zeros(4096, numpy.float32))
        assert scores.shape == (4096,)
        ids.append(int(scores.argmax()))
        text += tokens[ids[-1]]
    assert text in (b"yes", b"no")
    processor.reset()
    with pytest.raises(ValueError, match="scores are 9 wide"):
        processor(numpy.array([7]), numpy.zeros(9, numpy.float32))


def test_an_unknown_library(compiler):
    with pytest.raises(NotImplementedError, match="Library nothing is not available"):
        LogitsProcessor(compiler.compile_regex("a"), "nothing")
    with pytest.raises(TypeError, match="grammar must be a CompiledGrammar"):
        LogitsProcessor(json.dumps(SCHEMA), "numpy")
