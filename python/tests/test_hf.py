import pytest
from conftest import EOS, VOCAB

from formwork.grammar import GrammarMatcher

torch = pytest.importorskip("torch", reason="torch is not installed: the tensors are not tested")

from formwork.grammar.hf import LogitsProcessor  # noqa: E402


def test_a_torch_tensor_is_filled(matcher):
    bitmask = torch.full((2, 9), -1, dtype=torch.int32)
    assert matcher.fill_next_token_bitmask(bitmask, 1)
    words = bitmask[1].numpy().view("uint32")
    ids = [t for t in range(288) if int(words[t // 32]) >> (t % 32) & 1]
    assert ids == matcher.next_token_ids()
    assert (bitmask[0] == -1).all()
    with pytest.raises(TypeError, match="bitmask must be of int32"):
        matcher.fill_next_token_bitmask(bitmask.long())
    with pytest.raises(ValueError, match="contiguous"):
        matcher.fill_next_token_bitmask(torch.zeros((9, 2), dtype=torch.int32).T)
    with pytest.raises((TypeError, ValueError, RuntimeError, BufferError)):
        matcher.fill_next_token_bitmask(bitmask.to("meta"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_generate_writes_what_the_grammars_allow(compiler, dtype):
    grammars = [compiler.compile_regex("[ab]{3}"), compiler.compile_choice(["true", "false"])]
    processor = LogitsProcessor(grammars)
    torch.manual_seed(1)
    ids = torch.zeros((2, 4), dtype=torch.long)
    for _ in range(8):
        scores = processor(ids, torch.randn((2, 270)).to(dtype))
        ids = torch.cat([ids, scores.float().argmax(-1, keepdim=True)], dim=1)
    for row, grammar in zip(ids[:, 4:].tolist(), grammars, strict=True):
        matcher = GrammarMatcher(grammar)
        assert all(matcher.accept_token(token) for token in row)
        assert matcher.is_terminated()
    with pytest.raises(ValueError, match="one call of generate"):
        processor(ids[:1], scores[:1])
    processor.reset()
    with pytest.raises(ValueError, match="2 grammars for 1 rows"):
        processor(ids[:1], scores[:1])


def test_wrong_arguments(compiler):
    with pytest.raises(TypeError, match="must be a CompiledGrammar"):
        LogitsProcessor("a")
    processor = LogitsProcessor(compiler.compile_regex("a"))
    with pytest.raises(ValueError, match="scores are 100 wide"):
        processor(torch.zeros((1, 1)), torch.zeros((1, 100)))
    processor.reset()
    processor(torch.zeros((1, 1), dtype=torch.long), torch.zeros((1, 270)))
    with pytest.raises(ValueError, match="row 0 went on with token 98"):
        processor(torch.tensor([[0, 98]]), torch.zeros((1, 270)))
