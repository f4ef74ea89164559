"""MLX-LM's own generation with the built-in model, on MLX's backend for CPUs."""

import pytest
from conftest import MODEL, STOP, is_valid

from formwork.plugins.mlx_lm import LogitsProcessor, apply_bitmask

mx = pytest.importorskip("mlx.core", reason="MLX is not installed")


@pytest.fixture(scope="module")
def loaded():
    from mlx_lm import load

    return load(MODEL)


def test_generate_writes_what_the_grammar_allows(loaded, compiler):
    from mlx_lm import generate

    model, tokenizer = loaded
    schema = {
        "type": "object",
        "properties": {"name": {"enum": ["Ann", "Bo"]}, "age": {"type": "integer", "maximum": 99, "minimum": 1}},
        "required": ["name", "age"],
    }
    processor = LogitsProcessor(compiler.compile_json_schema(schema, strict=True, whitespace="compact"))
    for _ in range(2):
        processor.reset()
        text = generate(model, tokenizer, prompt="A person: ", max_tokens=60, logits_processors=[processor])
        assert is_valid(schema, text), text
        assert processor.matcher.is_completed()
    with pytest.raises(ValueError, match="one call of generate"):
        generate(model, tokenizer, prompt="A person: ", max_tokens=60, logits_processors=[processor])


def test_masks_are_those_of_numpy():
    import numpy

    words = numpy.array([[0b1011, -1]], dtype=numpy.int32)
    for width in (40, 64, 70):
        for dtype in (mx.float32, mx.float16, mx.bfloat16):
            masked = apply_bitmask(mx.zeros((1, width), dtype=dtype), words)
            assert masked.dtype == dtype
            kept = [t for t in range(width) if masked[0, t].item() == 0]
            assert kept == [0, 1, 3, *range(32, min(width, 64))]


def test_wrong_tokens(compiler, tokens):
    processor = LogitsProcessor(compiler.compile_regex("[ab]+"))
    with pytest.raises(ValueError, match="scores are 100 wide, but the vocabulary is 4096"):
        processor(mx.array([1]), mx.zeros((1, 100)))
    processor(mx.array([1]), mx.zeros((1, 4096)))
    with pytest.raises(ValueError, match="which its grammar doesn't allow"):
        processor(mx.array([1, tokens.index(b"x")]), mx.zeros((1, 4096)))
    processor.reset()
    logits = processor(mx.array([1]), mx.zeros((1, 4096)))
    assert STOP not in [t for t in range(4096) if logits[0, t].item() == 0]
