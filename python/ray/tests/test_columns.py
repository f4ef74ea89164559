"""The columns of an answered row, by a result of the batch format. Needs no Ray."""

import json

from formwork.ray._columns import COLUMNS, columns_of, seed_of


def result(message, **choice):
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop", **choice}
    body = {"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}
    return {"custom_id": "row", "response": {"status_code": 200, "body": body}, "error": None}


def filled(result, row_hash=7):
    columns = columns_of(result, row_hash)
    assert columns.keys() == COLUMNS.keys()
    assert all(value is None or type(value) is COLUMNS[name] for name, value in columns.items())
    return {name: value for name, value in columns.items() if value is not None}


USED = {"finish_reason": "stop", "prompt_tokens": 3, "completion_tokens": 2}


def test_a_text_is_all_that_there_is():
    answered = {**USED, "answer": "hé"}
    assert filled(result({"content": "hé"})) == answered
    assert filled(result({"content": "hé", "tool_calls": [], "reasoning": None}, logprobs=None)) == answered
    assert filled(result({"content": ""})) == {**USED, "answer": ""}


def test_what_is_more_than_a_text_is_kept():
    function = {"name": "f", "arguments": '{"a": 1}'}

    def calls(id_of):
        return [{"id": id_of(place), "type": "function", "function": function} for place in range(2)]

    columns = filled(result({"content": None, "tool_calls": calls(lambda place: f"call_random{place}")}), 255)
    message = {"role": "assistant", "content": None, "tool_calls": calls(lambda place: f"call_00000000000000ff_{place}")}
    assert json.loads(columns.pop("message")) == message
    assert columns == USED
    columns = filled(result({"content": "4", "reasoning": "2 + 2"}))
    assert json.loads(columns["message"]) == {"role": "assistant", "content": "4", "reasoning": "2 + 2"}
    logprobs = {"content": [{"token": "é", "logprob": -0.5, "bytes": [195, 169], "top_logprobs": []}]}
    columns = filled(result({"content": "é"}, logprobs=logprobs))
    assert json.loads(columns.pop("logprobs")) == logprobs
    assert columns == {**USED, "answer": "é"}


def test_an_error_is_all_that_there_is():
    body = {"error": {"message": "line 3: no such field", "code": 400}}
    assert filled({"response": {"status_code": 400, "body": body}, "error": None}) == {"error": "no such field"}
    assert filled({"response": None, "error": {"code": "x", "message": "gone"}}) == {"error": "gone"}


def test_a_seed_depends_on_the_row_and_the_seed():
    row = {"a": 1, "b": "x"}
    assert seed_of(row, 0) == seed_of(dict(reversed(row.items())), 0) < 2**62
    assert len({seed_of(row, 0), seed_of(row, 1), seed_of({**row, "a": 2}, 0)}) == 3
