"""Asks questions with fixed answers as users of the openai package do, and as curl does. Argument: the base URL."""

import json
import math
import subprocess
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="secret", max_retries=0)
model = client.models.list().data[0].id
text = "I was charged twice. Please send the money back."
refund = {"type": "predicate", "name": "refund", "instructions": "The customer wants a refund."}
questions = [
    refund,
    {
        "type": "choice",
        "instructions": [{"type": "input_text", "text": "Which team?"}, {"type": "input_json", "data": {"a": [1]}}],
        "choices": [{"value": "billing", "description": "Payments"}, {"value": "billing and refunds"}, {"value": True}],
    },
    {
        "type": "score",
        "name": "anger",
        "instructions": "How angry is the customer?",
        "levels": [{"label": "calm"}, {"label": "angry", "description": "Rude words"}, {"label": "very angry"}],
    },
]


def curl(body):
    command = ["curl", "--silent", "--show-error", "--data-binary", "@-", sys.argv[1] + "/decisions"]
    for header in ["Content-Type: application/json", "Authorization: Bearer secret"]:
        command += ["--header", header]
    done = subprocess.run(command, input=json.dumps(body), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def assert_same(one, other):
    """Equal, but for numbers that are as near as steps of other sizes bring them."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), (one, other)
        for key, value in one.items():
            assert_same(value, other[key])
    elif isinstance(one, list):
        assert len(one) == len(other), (one, other)
        for pair in zip(one, other):
            assert_same(*pair)
    elif isinstance(one, float) or isinstance(other, float):
        assert math.isclose(one, other, abs_tol=1e-4), (one, other)
    else:
        assert type(one) is type(other) and one == other, (one, other)


def ask(**request):
    """The package's answer, which curl gets too."""
    request = {"model": model, **request}
    answer = client.decisions.create(**request)
    same = curl(request)
    assert_same(answer.model_dump(mode="json"), same)
    assert answer.model == model and answer.usage.output_tokens == 0, answer
    return answer.answers


predicate, choice, score = ask(input=text, questions=questions)
assert predicate.type == "predicate" and predicate.name == "refund" and 0 < predicate.probability < 1, predicate
assert choice.type == "choice" and choice.name is None, choice
assert [entry.value for entry in choice.probabilities] == ["billing", "billing and refunds", True], choice
assert math.isclose(sum(entry.probability for entry in choice.probabilities), 1, abs_tol=1e-6), choice
assert choice.choice == max(choice.probabilities, key=lambda entry: entry.probability).value, choice
assert score.type == "score" and score.name == "anger", score
assert [(entry.value, entry.label) for entry in score.probabilities] == [(0, "calm"), (1, "angry"), (2, "very angry")]
expected = sum(entry.value * entry.probability for entry in score.probabilities)
assert math.isclose(score.score, expected, abs_tol=1e-6), score

# What has no effect changes no answer.
part = {"type": "input_text", "text": text, "prompt_cache_breakpoint": {"mode": "explicit"}}
again = ask(
    input=[{"role": "user", "content": [part]}],
    questions=questions,
    prompt_cache_key="key",
    prompt_cache_options={"mode": "explicit", "ttl": "30m"},
    safety_identifier="someone",
)
for one, other in zip([predicate, choice, score], again):
    assert_same(one.model_dump(mode="json"), other.model_dump(mode="json"))

# A conversation, with calls of tools.
conversation = [
    {"role": "system", "content": "Be brief."},
    {"role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]},
    {"role": "user", "content": [{"type": "input_text", "text": text}, {"type": "input_json", "data": {"order": 7}}]},
    {"role": "assistant", "phase": "commentary", "content": [{"type": "output_text", "text": "I look."}]},
    {"type": "function_call", "call_id": "c1", "name": "look_up", "arguments": '{"order": 7}', "status": "completed"},
    {"type": "function_call_output", "call_id": "c1", "output": "paid twice"},
    {"type": "custom_tool_call", "call_id": "c2", "name": "note", "input": "a refund"},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "noted"}]},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "I may not pay."}]},
]
of_conversation = ask(input=conversation, questions=questions)
assert [answer.type for answer in of_conversation] == ["predicate", "choice", "score"], of_conversation

# As many questions as there may be, each with its own answer.
many = [{**refund, "name": str(i)} for i in range(400)]
answers = client.decisions.create(model=model, input=text, questions=many).answers
assert [answer.name for answer in answers] == [str(i) for i in range(400)], answers
assert all(math.isclose(answer.probability, predicate.probability, abs_tol=1e-4) for answer in answers), answers

# What can't be served is refused by name.
image = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
for request, parameter in [
    ({"input": text, "questions": [*many, refund]}, "questions"),
    ({"input": [{"role": "user", "content": [image]}], "questions": [refund]}, "input[0].content[0]"),
    ({"input": text, "questions": [{**refund, "instructions": [image]}]}, "questions[0].instructions[0]"),
    ({"input": conversation[5:6], "questions": [refund]}, "input[0].call_id"),
]:
    try:
        client.decisions.create(model=model, **request)
    except openai.BadRequestError as error:
        assert error.param == parameter, error
    else:
        raise AssertionError(f"{parameter} was not refused")
