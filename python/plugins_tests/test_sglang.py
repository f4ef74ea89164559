"""SGLang's own registration, backend choice, reasoning wrapper and sampling batch."""

import json
from types import SimpleNamespace

import pytest
import torch
from conftest import MODEL, STOP, Walk, is_valid, text_of
from sglang.srt.plugins import load_plugins

load_plugins()

from sglang.srt.arg_groups.choices import GRAMMAR_BACKEND_CHOICES  # noqa: E402
from sglang.srt.constrained.base_grammar_backend import (  # noqa: E402
    InvalidGrammarObject,
    create_grammar_backend,
)
from sglang.srt.runtime_context import get_context, get_serving  # noqa: E402
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo  # noqa: E402
from sglang.srt.server_args import ServerArgs  # noqa: E402

from formwork.grammar import MatcherError  # noqa: E402
from formwork.plugins import sglang as plugin  # noqa: E402
from formwork.plugins._sglang_backend import (  # noqa: E402
    FormworkBackend,
    FormworkGrammar,
    FormworkReasoner,
    json_options,
)


@pytest.fixture(scope="module")
def server_args():
    args = ServerArgs(model_path=MODEL, grammar_backend="formwork", device="cpu")
    get_context().set_server_args(args)
    return args


def make(server_args, tokenizer):
    return create_grammar_backend(server_args, tokenizer, 4096, {STOP}, think_end_ids=[1])


@pytest.fixture
def backend(server_args, tokenizer):
    return make(server_args, tokenizer)


def compiled(backend, kind, source, reasoning=False):
    """As SGLang's GrammarManager gets and keeps one."""
    value, is_hit = backend.get_cached_or_future_value((kind, source), reasoning)
    if is_hit:
        return value
    grammar = value.result(60)
    backend.set_cache((kind, source), grammar.copy())
    return grammar


def masks(grammars):
    """The mask that SGLang's sampling batch fills, and the logits that it gives."""
    batch = SimpleNamespace(
        grammars=grammars, vocab_size=4096, temperatures=[1.0] * len(grammars), device="cpu"
    )
    SamplingBatchInfo.update_regex_vocab_mask(batch)
    return batch.grammar_mask


def walk(tokens, grammars):
    running = {}
    for n, grammar in enumerate(grammars):
        inner = grammar.grammar if isinstance(grammar, FormworkReasoner) else grammar
        running[n] = (grammar, Walk(tokens, n, inner.grammar), [])
    done = {}
    while running:
        numbers = list(running)
        mask = masks([running[n][0] for n in numbers]).vocab_mask
        for row, n in zip(mask.numpy(), numbers, strict=True):
            grammar, steps, written = running[n]
            token = steps.choose(row)
            written.append(token)
            grammar.accept_token(token)
            if grammar.is_terminated():
                done[n] = text_of(tokens, written)
                del running[n]
    return [done[n] for n in range(len(grammars))]


def test_it_is_a_choice_once():
    assert GRAMMAR_BACKEND_CHOICES.count("formwork") == 1
    plugin.register()
    assert GRAMMAR_BACKEND_CHOICES.count("formwork") == 1


def test_200_schemas(backend, tokens, schemas):
    assert type(backend) is FormworkBackend
    grammars = [compiled(backend, "json", json.dumps(schema)) for schema in schemas]
    assert all(isinstance(grammar, FormworkGrammar) for grammar in grammars)
    for schema, text in zip(schemas, walk(tokens, grammars), strict=True):
        assert is_valid(schema, text), (schema, text)
    # A second request finds the grammar in SGLang's cache, at its start.
    again = compiled(backend, "json", json.dumps(schemas[0]))
    assert again.grammar_stats.is_cache_hit and not again.is_terminated()


def test_each_kind(backend, tokens):
    tag = {"format": {"type": "tag", "begin": "<a>", "content": {"type": "json_schema"}, "end": "</a>"}}
    legacy = {"structures": [{"begin": "<f>", "schema": {"const": 1}, "end": "</f>"}], "triggers": ["<f>"]}
    grammars = [
        compiled(backend, "json", "$$ANY$$"),
        compiled(backend, "regex", "[0-9]{3}"),
        compiled(backend, "ebnf", 'root ::= "ab" | "cd"'),
        compiled(backend, "structural_tag", json.dumps({"type": "structural_tag", **tag})),
        compiled(backend, "structural_tag", json.dumps(legacy)),
    ]
    texts = walk(tokens, grammars)
    json.loads(texts[0])
    assert len(texts[1]) == 3 and texts[2] in ("ab", "cd")
    json.loads(texts[3].removeprefix("<a>").removesuffix("</a>"))
    assert "<f>" not in texts[4] or "<f>1</f>" in texts[4]


def test_what_cannot_be_enforced_is_named(backend):
    for kind, source, message in (
        ("json", '{"type": "number", "minimum": "0"}', "minimum"),
        ("json", "{", "line 1"),
        ("regex", "a(", "regex"),
        ("ebnf", "root ::= missing", "missing"),
        ("structural_tag", "{", "structural tag"),
        ("structural_tag", '{"format": {"type": "nothing"}}', "nothing"),
    ):
        grammar = backend._init_value_dispatch((kind, source), False)
        assert isinstance(grammar, InvalidGrammarObject) and message in grammar.error_message, grammar


def test_the_mask_is_applied_to_logits(backend, tokens):
    grammars = [compiled(backend, "regex", "[01]"), None, compiled(backend, "regex", "[ab]")]
    logits = torch.zeros((3, 4100))
    masks(grammars).apply(logits)
    allowed = [{tokens[t] for t in torch.isfinite(row[:4096]).nonzero().flatten().tolist()} for row in logits]
    assert allowed[0] == {b"0", b"1"} and len(allowed[1]) > 4000 and allowed[2] == {b"a", b"b"}


def test_back_and_ahead(backend, tokens, tokenizer):
    grammar = compiled(backend, "regex", "colou?r: (red|green)")
    helper = grammar.try_jump_forward(tokenizer)
    assert grammar.jump_forward_str_state(helper) == ("colo", -1)
    old = tokenizer.encode("col")
    new = tokenizer.encode("color: g")
    for token in old:
        grammar.accept_token(token)
    grammar.jump_and_retokenize(old, new, -1)
    assert grammar.jump_forward_str_state(grammar.try_jump_forward(tokenizer)) == ("reen", -1)
    with pytest.raises(ValueError, match="not allowed"):
        grammar.accept_token(tokens.index(b"x"))
    grammar.rollback(len(new))
    assert grammar.jump_forward_str_state(grammar.try_jump_forward(tokenizer)) == ("colo", -1)


def test_a_limit_ends_one_request(backend, tokens):
    grammar, other = compiled(backend, "regex", "[ab]+"), compiled(backend, "regex", "[cd]+")
    grammar.request.failure = MatcherError("too many states")
    rows = masks([grammar, other]).vocab_mask.numpy().view("uint32")
    bits = [[t for t in range(4096) if int(row[t // 32]) >> t % 32 & 1] for row in rows]
    assert bits[0] == [STOP] and STOP not in bits[1]
    with pytest.raises(ValueError, match="too many states"):
        grammar.accept_token(STOP)


def test_reasoning_is_free_and_the_answer_is_not(server_args, tokenizer, tokens, schemas):
    with get_serving().override(reasoning_parser="qwen3"):
        backend = make(server_args, tokenizer)
    end = tokenizer.encode("</think>")
    assert len(end) == 1
    chosen = schemas[:20]
    grammars = []
    for schema in chosen:
        grammar = compiled(backend, "json", json.dumps(schema), reasoning=True)
        assert isinstance(grammar, FormworkReasoner)
        copied = grammar.copy()
        copied.maybe_init_reasoning(True)
        grammars.append(copied)
    # The first is in its reasoning, in which every token is allowed, and the others are past it.
    for grammar in grammars[1:]:
        for token in tokenizer.encode("a thought") + end:
            grammar.accept_token(token)
    rows = masks(grammars).vocab_mask
    assert (rows[0] == -1).all() and not (rows[1:] == -1).all(dim=1).any()
    grammars[0].accept_token(end[0])
    for schema, text in zip(chosen, walk(tokens, grammars), strict=True):
        assert is_valid(schema, text), (schema, text)
    answers = compiled(backend, "json", json.dumps(chosen[0]), reasoning=False)
    assert not (masks([answers]).vocab_mask == -1).all()


def test_strict_thinking_needs_the_token_filter(server_args, tokenizer, monkeypatch):
    monkeypatch.setenv("SGLANG_MAX_THINK_TOKENS", "2")
    with get_serving().override(reasoning_parser="qwen3", enable_strict_thinking=True):
        backend = make(server_args, tokenizer)
    grammar = backend.init_strict_reasoning_grammar(True)
    end = tokenizer.encode("</think>")[0]
    for token in tokenizer.encode("ab cd ef gh")[:2]:
        grammar.accept_token(token)
    row = masks([grammar]).vocab_mask.numpy().view("uint32")[0]
    assert [t for t in range(4096) if int(row[t // 32]) >> t % 32 & 1] == [end]


def test_white_space_is_as_the_server_is_told(server_args, tokenizer, tokens):
    free = {"strict": False}
    assert json_options(False, None, None) == {**free, "whitespace": "flexible"}
    assert json_options(True, 3, None) == {**free, "whitespace": "compact"}
    assert json_options(False, 3, None) == {**free, "whitespace_pattern": "[ \\n\\r\\t]{0,3}"}
    assert json_options(True, 3, " ?") == {**free, "whitespace_pattern": " ?"}
    with get_serving().override(constrained_json_disable_any_whitespace=True):
        backend = make(server_args, tokenizer)
    grammar = compiled(backend, "json", '{"const": ["a", {"b": null}]}')
    assert walk(tokens, [grammar]) == ['["a",{"b":null}]']


def test_strict_closes_objects(server_args, tokenizer, tokens, monkeypatch):
    schema = '{"type": "object", "properties": {"a": {"const": "b"}}, "required": ["a"]}'
    monkeypatch.setenv("FORMWORK_STRICT", "1")
    closed = compiled(make(server_args, tokenizer), "json", schema).request.matcher
    monkeypatch.setenv("FORMWORK_STRICT", "0")
    free = compiled(make(server_args, tokenizer), "json", schema).request.matcher
    assert closed.accept_string('{"a": "b"') and free.accept_string('{"a": "b"')
    assert not closed.accept_string(',') and free.accept_string(',')


def test_another_version_is_refused_where_the_backend_is_chosen(server_args, tokenizer, monkeypatch):
    from importlib import metadata

    monkeypatch.setattr(metadata, "version", lambda package: "0.6.1")
    plugin.register()
    with pytest.raises(ImportError, match=r"made for sglang 0\.5\.23, not 0\.6\.1: pip install"):
        make(server_args, tokenizer)
