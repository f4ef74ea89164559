"""vLLM's own StructuredOutputManager and SamplingParams, loaded and patched as vLLM does it."""

import os

import pytest
import torch
from conftest import MODEL, STOP, Walk, is_valid, text_of
from vllm.plugins import load_general_plugins

load_general_plugins()

import vllm.v1.structured_output as manager_module  # noqa: E402
from vllm.config import (  # noqa: E402
    DeviceConfig,
    ModelConfig,
    SchedulerConfig,
    StructuredOutputsConfig,
    VllmConfig,
)
from vllm.sampling_params import SamplingParams, StructuredOutputsParams  # noqa: E402
from vllm.v1.request import Request  # noqa: E402

from formwork.plugins import vllm as plugin  # noqa: E402
from formwork.plugins._vllm_backend import (  # noqa: E402
    FormworkBackend,
    FormworkGrammar,
    FormworkValidationError,
)


@pytest.fixture(scope="module")
def config():
    model_config = ModelConfig(model=MODEL, dtype="float32")
    return VllmConfig(
        model_config=model_config,
        device_config=DeviceConfig(device="cpu"),
        scheduler_config=SchedulerConfig(
            max_num_seqs=256, max_model_len=2048, is_encoder_decoder=False, max_num_batched_tokens=2048
        ),
    )


@pytest.fixture
def manager(config):
    manager = manager_module.StructuredOutputManager(config)
    yield manager
    manager.clear_backend()


def request(manager, number, backend="xgrammar", **params):
    """A request as the front end checks it and the engine core makes it."""
    sampling = SamplingParams(structured_outputs=StructuredOutputsParams(**params), max_tokens=100)
    sampling.update_from_generation_config({}, STOP)
    sampling._validate_structured_outputs(
        manager.vllm_config.model_config, StructuredOutputsConfig(backend=backend), manager.tokenizer
    )
    made = Request(
        request_id=f"r{number}", prompt_token_ids=[1], sampling_params=sampling, pooling_params=None
    )
    manager.grammar_init(made)
    grammar = made.structured_output_request._grammar
    if not isinstance(grammar, FormworkGrammar):
        made.structured_output_request.grammar = grammar.result(60)
    assert isinstance(made.structured_output_request.grammar, FormworkGrammar)
    return made


def walk(manager, tokens, requests):
    """Texts of all requests, whose rows are filled together until the last ends."""
    running = {}
    for seed, made in enumerate(requests):
        grammar = made.structured_output_request.grammar.request.grammar
        running[made.request_id] = (made, Walk(tokens, seed, grammar), [])
    done = {}
    while running:
        ids = list(running)
        bitmask = manager.grammar_bitmask({r: running[r][0] for r in ids}, ids, {})
        assert bitmask.shape == (len(ids), 128)
        for row, request_id in zip(bitmask, ids, strict=True):
            made, steps, written = running[request_id]
            token = steps.choose(row)
            written.append(token)
            assert manager.accept_tokens(made, [token])
            if made.structured_output_request.grammar.is_terminated():
                assert token == STOP
                done[request_id] = text_of(tokens, written)
                del running[request_id]
    return [done[made.request_id] for made in requests]


def test_it_takes_the_place_of_xgrammar():
    assert manager_module.XgrammarBackend is FormworkBackend
    plugin.register()


@pytest.mark.parametrize("backend", ["xgrammar", "auto"])
def test_200_schemas(manager, tokens, schemas, backend):
    # More than 128 in a batch go to the manager's threads, the rest is filled in one call.
    requests = [request(manager, n, backend, json=schema) for n, schema in enumerate(schemas)]
    texts = walk(manager, tokens, requests)
    for schema, text in zip(schemas, texts, strict=True):
        assert is_valid(schema, text), (schema, text)
    assert isinstance(manager.backend, FormworkBackend)


def test_each_kind(manager, tokens):
    tag = (
        '{"type": "structural_tag", "format": {"type": "tag", "begin": "<a>", "content": '
        '{"type": "json_schema", "json_schema": {"const": 7}}, "end": "</a>"}}'
    )
    token_tag = (
        '{"type": "structural_tag", "format": {"type": "sequence", "elements": [{"type": "token", "token": '
        '"<|im_start|>"}, {"type": "const_string", "value": "x"}]}}'
    )
    requests = [
        request(manager, 0, choice=["yes", "no"]),
        request(manager, 1, regex="[0-9]{3}-[a-c]"),
        request(manager, 2, grammar='root ::= "ab" | "cd"'),
        request(manager, 3, grammar='start: "ef"'),
        request(manager, 4, json_object=True),
        request(manager, 5, structural_tag=tag),
        request(manager, 6, structural_tag=token_tag),
    ]
    texts = walk(manager, tokens, requests)
    assert texts[0] in ("yes", "no")
    assert len(texts[1]) == 5 and texts[1][3] == "-"
    assert texts[2] in ("ab", "cd") and texts[3] == "ef"
    assert is_valid({"type": "object"}, texts[4])
    assert is_valid({"const": 7}, texts[5].removeprefix("<a>").removesuffix("</a>"))
    assert texts[6] == "<|im_start|>x"


def test_what_cannot_be_enforced_is_refused_and_nothing_else_is_chosen(manager):
    for backend in ("xgrammar", "auto"):
        with pytest.raises(FormworkValidationError, match="minimum"):
            request(manager, 0, backend, json={"type": "number", "minimum": "0"})
        with pytest.raises(FormworkValidationError, match="regex"):
            request(manager, 0, backend, regex="a(")
    assert manager.backend is None


def test_drafts_go_forth_and_back(manager, tokens):
    made = request(manager, 0, regex="[0-9]{3}")
    grammar = made.structured_output_request.grammar
    one, two, a = (tokens.index(text) for text in (b"1", b"2", b"a"))
    assert grammar.validate_tokens([one, two, a, one]) == [one, two]
    bitmask = manager.backend.allocate_token_bitmask(2)
    grammar.fill_bitmask(bitmask, 0)
    assert grammar.accept_tokens("r0", [one, two, one]) and not grammar.accept_tokens("r0", [one])
    assert grammar.accept_tokens("r0", [STOP, a]) and grammar.is_terminated()
    assert grammar.validate_tokens([one]) == []
    grammar.rollback(4)
    grammar.fill_bitmask(bitmask, 1)
    assert torch.equal(bitmask[0], bitmask[1])
    grammar.reset()
    assert not grammar.is_terminated()


def test_stop_tokens_are_the_requests(manager, tokens):
    sampling = SamplingParams(structured_outputs=StructuredOutputsParams(regex="a"), stop_token_ids=[77])
    sampling.update_from_generation_config({}, STOP)
    grammar = manager_module.XgrammarBackend(
        manager.vllm_config, tokenizer=manager.tokenizer, vocab_size=4096
    ).compile_grammar(
        manager_module.backend_types.StructuredOutputOptions.REGEX, "a", sampling.all_stop_token_ids
    )
    assert sorted(grammar.request.matcher.stop_token_ids) == [77, STOP]


def test_reasoning_is_free_and_the_answer_is_not(config, tokens):
    import dataclasses

    structured = StructuredOutputsConfig(backend="xgrammar", reasoning_parser="qwen3")
    manager = manager_module.StructuredOutputManager(
        dataclasses.replace(config, structured_outputs_config=structured)
    )
    thought, end = manager.tokenizer.encode("a thought"), manager.tokenizer.encode("</think>")
    requests = [request(manager, 0, json={"const": "x"}), request(manager, 1, json={"const": "y"})]
    for token in [*thought, *end]:
        # As the scheduler does: the request has the token before its grammar is asked.
        requests[1].append_output_token_ids([token])
        assert manager.accept_tokens(requests[1], [token])
    masks = manager.grammar_bitmask({r.request_id: r for r in requests}, ["r0", "r1"], {})
    # Of a thought every token but the one by which this parser ends it with a tool call, which the schema forbids.
    call = manager.tokenizer.convert_tokens_to_ids("<tool_call>")
    words = masks[0].view("uint32")
    assert [t for t in range(4096) if not int(words[t // 32]) >> t % 32 & 1] == [call]
    assert not (masks[1] == -1).all()
    assert manager.accept_tokens(requests[0], thought)
    (text,) = walk(manager, tokens, requests[1:])
    assert is_valid({"const": "y"}, text)
    manager.clear_backend()


def test_rows_of_a_draft(manager, tokens):
    made, other = request(manager, 0, regex="[0-9]{3}"), request(manager, 1, regex="[ab]")
    one, a = tokens.index(b"1"), tokens.index(b"a")
    # Two tokens that fit and one that doesn't: the mask before it, and behind it the same.
    manager.grammar_bitmask({"r0": made}, ["r0"], {"r0": [one, one, a]})
    rows = manager._grammar_bitmask.clone()
    for count in range(3):
        expected = manager.backend.allocate_token_bitmask(1)
        made.structured_output_request.grammar.fill_bitmask(expected, 0)
        assert torch.equal(rows[count], expected[0])
        if count < 2:
            assert manager.accept_tokens(made, [one])
    assert torch.equal(rows[3], rows[2])
    both = manager.grammar_bitmask({"r0": made, "r1": other}, ["r1", "r0"], {})
    assert (both[1] == rows[2].numpy()).all() and not (both[0] == both[1]).all()


def test_white_space_and_strict(manager, config, monkeypatch):
    import dataclasses

    from formwork.plugins import _vllm_backend

    options = manager_module.backend_types.StructuredOutputOptions
    schema = '{"type": "object", "properties": {"a": {"const": "b"}}, "required": ["a"]}'

    def matcher(**settings):
        structured = StructuredOutputsConfig(backend="xgrammar", **settings)
        made = FormworkBackend(
            dataclasses.replace(config, structured_outputs_config=structured), manager.tokenizer, 4096
        )
        return made.compile_grammar(options.JSON, schema).request.matcher

    free, compact = matcher(), matcher(disable_any_whitespace=True)
    assert free.accept_string('{"a": "b"') and free.fork().accept_string(",")
    assert not compact.accept_string('{"a": "b"') and compact.accept_string('{"a":"b"')
    monkeypatch.setattr(_vllm_backend, "STRICT", True)
    strict = matcher()
    assert strict.accept_string('{"a": "b"') and not strict.accept_string(",") and strict.accept_string("}")


def test_a_limit_ends_one_request(manager, tokens):
    from formwork.grammar import MatcherError

    made, other = request(manager, 0, regex="[ab]+"), request(manager, 1, regex="[cd]+")
    grammar = made.structured_output_request.grammar
    grammar.request.failure = MatcherError("a limit")
    bitmask = manager.grammar_bitmask({"r0": made, "r1": other}, ["r0", "r1"], {})
    bits = [[t for t in range(4096) if int(row.view("uint32")[t // 32]) >> t % 32 & 1] for row in bitmask]
    assert bits[0] == [STOP] and len(bits[1]) > 1 and STOP not in bits[1]
    assert not manager.accept_tokens(made, [STOP])


def test_off_by_default(monkeypatch):
    monkeypatch.setenv("FORMWORK_VLLM", "yes")
    with pytest.raises(ValueError, match="FORMWORK_VLLM is 'yes', but it must be 1"):
        plugin.register()
    monkeypatch.delenv("FORMWORK_VLLM")
    assert plugin.register() is None
    assert "FORMWORK_VLLM" not in os.environ
