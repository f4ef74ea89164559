"""LLM: prompts, conversations, parameters, and what is refused."""

import concurrent.futures
import copy
import math
import pickle

import pytest

import formwork
from formwork import LLM, SamplingParams, TokensPrompt, ValidationError

GREEDY = SamplingParams(temperature=0, max_tokens=8)
PROMPT = "Once upon a time"


def texts(outputs):
    return [answer.text for output in outputs for answer in output.outputs]


def test_one_prompt_and_a_list_have_the_same_answers(llm):
    (alone,) = llm.generate(PROMPT, GREEDY, use_tqdm=False)
    assert alone.prompt == PROMPT and alone.finished and alone.outputs[0].finished()
    assert alone.outputs[0].finish_reason == "length" and len(alone.outputs[0].token_ids) == 8
    tokens = alone.prompt_token_ids
    prompts = [PROMPT, {"prompt": PROMPT}, tokens, TokensPrompt(prompt_token_ids=tokens), "Hello"]
    outputs = llm.generate(prompts, GREEDY, use_tqdm=False)
    assert texts(outputs)[:4] == texts([alone]) * 4
    assert [output.prompt_token_ids for output in outputs[:4]] == [tokens] * 4
    assert [output.prompt for output in outputs] == [PROMPT, PROMPT, None, None, "Hello"]
    assert texts(llm.generate(tokens, GREEDY, use_tqdm=False)) == texts([alone])
    assert llm.generate([], GREEDY, use_tqdm=False) == []


def test_many_answers_in_order(llm):
    many = SamplingParams(n=3, seed=1, temperature=2, max_tokens=20)
    outputs = llm.generate(["a", "b"], [many, GREEDY], use_tqdm=False)
    assert [[answer.index for answer in output.outputs] for output in outputs] == [[0, 1, 2], [0]]
    assert len(set(texts(outputs[:1]))) > 1


def test_logprobs_are_of_each_token(llm):
    (output,) = llm.generate(PROMPT, SamplingParams(temperature=0, max_tokens=5, logprobs=2, prompt_logprobs=0), use_tqdm=False)
    (answer,) = output.outputs
    assert len(answer.logprobs) == 5
    for token, position in zip(answer.token_ids, answer.logprobs):
        best = next(iter(position))
        assert best == token and position[token].rank == 1 and len(position) == 2
        assert sum(math.exp(entry.logprob) for entry in position.values()) < 1 + 1e-6
    chosen = [position[token] for token, position in zip(answer.token_ids, answer.logprobs)]
    assert answer.cumulative_logprob == pytest.approx(sum(entry.logprob for entry in chosen))
    assert "".join(entry.decoded_token for entry in chosen) == answer.text
    assert output.prompt_logprobs[0] is None
    assert [list(position) for position in output.prompt_logprobs[1:]] == [[token] for token in output.prompt_token_ids[1:]]


def test_stops_and_text(llm):
    (output,) = llm.generate(PROMPT, SamplingParams(temperature=0, max_tokens=30), use_tqdm=False)
    whole = output.outputs[0]
    stop = whole.text[3:5]
    params = SamplingParams(temperature=0, max_tokens=30, stop=stop, detokenize=True)
    answer = llm.generate(PROMPT, params, use_tqdm=False)[0].outputs[0]
    assert (answer.text, answer.finish_reason, answer.stop_reason) == (whole.text.split(stop)[0], "stop", stop)
    tokens = SamplingParams(temperature=0, max_tokens=30, detokenize=False)
    answer = llm.generate(PROMPT, tokens, use_tqdm=False)[0].outputs[0]
    assert (answer.text, answer.token_ids) == ("", whole.token_ids)


def test_conversations(llm):
    hello = [{"role": "user", "content": "Hi"}]
    (alone,) = llm.chat(hello, GREEDY, use_tqdm=False)
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    both = llm.chat([hello, parts], GREEDY, use_tqdm=False)
    assert texts(both) == texts([alone]) * 2
    assert both[1].prompt_token_ids == alone.prompt_token_ids
    template = "{% for message in messages %}<{{ message.content }}>{{ x }}{% endfor %}"
    (own,) = llm.chat(hello, GREEDY, use_tqdm=False, chat_template=template, chat_template_kwargs={"x": "!"})
    assert own.prompt == "<Hi>!"
    open_end = [*hello, {"role": "assistant", "content": "Hel"}]
    (goes_on,) = llm.chat(open_end, GREEDY, use_tqdm=False, add_generation_prompt=False, continue_final_message=True)
    assert goes_on.prompt.endswith("Hel")


def test_the_same_calls_have_the_same_answers_with_a_seed():
    def run():
        engine = LLM(seed=7, max_model_len=256, threads=1)
        params = SamplingParams(temperature=2, max_tokens=12)
        answers = texts(engine.generate([PROMPT] * 4, params, use_tqdm=False))
        answers += texts(engine.generate(PROMPT, params, use_tqdm=False))
        engine.shutdown()
        return answers

    first = run()
    assert run() == first
    assert len(set(first)) > 1


def test_default_parameters_are_the_models(llm):
    params = llm.get_default_sampling_params()
    assert isinstance(params, SamplingParams)
    params.max_tokens = 3
    assert len(llm.generate(PROMPT, params, use_tqdm=False)[0].outputs[0].token_ids) <= 3
    assert llm.max_model_len == 512
    # None is all that there is room for.
    endless = SamplingParams(max_tokens=None, ignore_eos=True, seed=1)
    (output,) = llm.generate([1] * 500, endless, use_tqdm=False)
    assert len(output.outputs[0].token_ids) == 12
    cut = SamplingParams(max_tokens=4, truncate_prompt_tokens=10)
    assert len(llm.generate("a b " * 5000, cut, use_tqdm=False)[0].prompt_token_ids) == 10


def test_progress_is_told_of_each_prompt(llm):
    taken = []

    def bar(requests, total, desc):
        for request in requests:
            taken.append(total)
            yield request

    llm.generate(["a", "b", "c"], GREEDY, use_tqdm=bar)
    assert taken == [3, 3, 3]


def test_many_threads(llm):
    prompts = [f"{i} and" for i in range(40)]
    expected = texts(llm.generate(prompts, GREEDY, use_tqdm=False))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda prompt: texts(llm.generate(prompt, GREEDY, use_tqdm=False))[0], prompts))
    assert answers == expected


def test_parameters_are_values():
    params = SamplingParams(n=2, stop=["x"], logit_bias={5: 1.5}, structured_outputs=formwork.StructuredOutputsParams(json={}))
    assert pickle.loads(pickle.dumps(params)) == copy.deepcopy(params) == params
    assert "n=2" in repr(params)


@pytest.mark.parametrize(
    "given, parameter",
    [
        ({"temperature": 3}, "temperature"),
        ({"temperature": "hot"}, "sampling_params.temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 0}, "sampling_params.n"),
        ({"seed": 1.5}, "sampling_params.seed"),
        ({"max_tokens": 0}, "sampling_params.max_tokens"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["x"], "detokenize": False}, "stop"),
        ({"logit_bias": {"x": 1}}, "sampling_params.logit_bias"),
        ({"logprob_token_ids": [1]}, "sampling_params.logprob_token_ids"),
        ({"extra_args": {"a": 1}}, "sampling_params.extra_args"),
        ({"structured_outputs": {"yaml": "a"}}, "sampling_params.structured_outputs.yaml"),
    ],
)
def test_parameters_that_are_wrong_for_every_model(given, parameter):
    with pytest.raises(ValidationError) as raised:
        SamplingParams(**given)
    assert raised.value.parameter == parameter
    assert parameter.split(".")[-1] in str(raised.value)


@pytest.mark.parametrize(
    "given, error, message",
    [
        ({"output_kind": 1}, TypeError, "output_kind must be a RequestOutputKind, got 1"),
        ({"truncate_prompt_tokens": 2**70}, ValueError, "truncate_prompt_tokens must be a whole number of 64 bits"),
        ({"truncate_prompt_tokens": "x"}, TypeError, "truncate_prompt_tokens must be a whole number, got 'x'"),
        ({"detokenize": "x"}, TypeError, "detokenize"),
        ({"temperature": float("nan")}, ValueError, "sampling_params must be made of what JSON has"),
    ],
)
def test_parameters_that_json_does_not_have(given, error, message):
    with pytest.raises(error, match=message):
        SamplingParams(**given)


def test_an_unknown_parameter():
    with pytest.raises(TypeError, match="guided_yaml"):
        SamplingParams(guided_yaml="a")


@pytest.mark.parametrize(
    "prompts, error, message",
    [
        (5, TypeError, "prompts must be"),
        (b"a", TypeError, "prompts must be"),
        ([None], TypeError, "a prompt must be text"),
        ([{"text": "a"}], ValueError, "prompt_token_ids, got .'text'."),
        ([[1, -1]], ValueError, "got -1"),
        ([[1, 2**40]], ValueError, "got 1099511627776"),
        ([[True]], ValueError, "got True"),
        ([[99999]], ValidationError, "token id 99999 is out of range"),
        (["x" * 5000], ValidationError, "maximum context length is 512"),
        ([""], ValidationError, "prompt"),
        (["\ud800"], ValueError, "surrogates"),
    ],
)
def test_prompts_that_are_refused(llm, prompts, error, message):
    with pytest.raises(error, match=message):
        llm.generate(prompts, GREEDY, use_tqdm=False)
    # Nothing is left of them.
    assert texts(llm.generate(PROMPT, GREEDY, use_tqdm=False))


def test_other_arguments_that_are_refused(llm):
    with pytest.raises(ValueError, match="got 1 for 2 prompts"):
        llm.generate(["a", "b"], [GREEDY], use_tqdm=False)
    with pytest.raises(TypeError, match="sampling_params must be"):
        llm.generate("a", {"n": 1}, use_tqdm=False)
    with pytest.raises(ValueError, match="priority must have one number for each prompt"):
        llm.generate("a", GREEDY, priority=[1, 2], use_tqdm=False)
    with pytest.raises(TypeError, match="priority must be a whole number, got 'x'"):
        llm.generate("a", GREEDY, priority=["x"], use_tqdm=False)
    with pytest.raises(ValidationError, match="logprobs must be at most 20 here .max_logprobs raises"):
        llm.generate("a", SamplingParams(logprobs=100), use_tqdm=False)
    with pytest.raises(ValidationError, match=r"messages\[0\].role must be one of"):
        llm.chat([{"role": "x", "content": "a"}], GREEDY, use_tqdm=False)
    with pytest.raises(ValidationError, match="at least one message"):
        llm.chat([], GREEDY, use_tqdm=False)
    with pytest.raises(TypeError, match="messages must be a list"):
        llm.chat("Hi", GREEDY, use_tqdm=False)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"model": "/nowhere/model"}, FileNotFoundError, "no model at /nowhere/model: give a folder"),
        ({"max_model_len": "long"}, ValidationError, "max_model_len: must be a whole number .*, got long"),
        ({"max_model_len": 10**9}, RuntimeError, "must be from 2 .* to 2048"),
        ({"dtype": "int3"}, ValidationError, "dtype: must be one of auto, float32, .*, got int3"),
        ({"max_modle_len": 5}, ValidationError, "no argument max_modle_len; there is .*max_model_len"),
        ({"zzz": 5}, ValidationError, "no argument zzz"),
        ({"enable_prefix_caching": "x"}, ValidationError, "must be True or False, got x"),
        ({"model": True}, ValidationError, "model must be a value, got True"),
        ({"tensor_parallel_size": 2}, ValidationError, "tensor_parallel_size must be 1"),
        ({"structured_outputs_config": {"backend": "zzz"}}, ValidationError, "structured_outputs_config: .*zzz"),
        ({"seed": "x"}, TypeError, "seed must be a whole number"),
        ({"engine_core": "/nowhere/core"}, RuntimeError, "/nowhere/core"),
    ],
)
def test_engines_that_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        LLM(**arguments)


def test_arguments_of_vllm_that_ask_for_nothing():
    engine = LLM(
        max_model_len=64,
        tensor_parallel_size=1,
        trust_remote_code=True,
        enforce_eager=True,
        enable_prefix_caching=False,
        structured_outputs_config={"backend": "xgrammar"},
        kv_cache_memory_bytes=8_000_000,
        speculative_config=None,
    )
    answers = texts(engine.generate(PROMPT, GREEDY, use_tqdm=False))
    engine.shutdown()
    assert len(answers) == 1
