"""Values of every kind in every place: each is taken, or refused by an exception that names the place."""

import dataclasses

import pytest

from formwork import RepetitionDetectionParams, RequestOutputKind, SamplingParams, StructuredOutputsParams

DEEP: list = []
for _ in range(5000):
    DEEP = [DEEP]
JUNK = [
    None, True, False, 0, 1, -1, 2, 3.5, -0.5, 1e400, float("nan"), 2**31, 2**63, 2**64, 2**200, "", "a", "\ud800",
    "\0", "x" * 100_000, [], [1], ["a"], [None], [[1]], [2**40], {}, {"a": 1}, {1: 2}, {"json": {}}, {1: "a"}, b"a",
    object(), {1, 2}, DEEP, StructuredOutputsParams(choice=["a"]), StructuredOutputsParams(json={"a": float("inf")}),
    RepetitionDetectionParams(2, 1, 2), RequestOutputKind.DELTA, len,
]  # fmt: skip


# Of parameters without effect.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(SamplingParams)])
def test_a_parameter(llm, field):
    for value in JUNK:
        try:
            params = SamplingParams(**{"max_tokens": 1, field: value})
            params.max_tokens = 1
            llm.generate("a", params, use_tqdm=False)
        except (TypeError, ValueError) as error:
            # The whole is no JSON, or the field is.
            names = (field, "sampling_params", "structured_outputs" if field == "guided_decoding" else field)
            assert any(name in str(error) for name in names), (value, error)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(StructuredOutputsParams)])
def test_a_constraint(llm, field):
    for value in JUNK:
        others = {} if field in ("json", "regex", "choice", "grammar", "json_object", "structural_tag") else {"json": {}}
        try:
            constraint = StructuredOutputsParams(**{field: value, **others})
            llm.generate("a", SamplingParams(max_tokens=20, structured_outputs=constraint), use_tqdm=False)
        except (TypeError, ValueError) as error:
            assert "structured_outputs" in str(error) or field in str(error) or "sampling_params" in str(error), error


def test_a_prompt_and_a_message(llm):
    params = SamplingParams(max_tokens=1)
    for value in JUNK:
        for call in (
            lambda: llm.generate(value, params, use_tqdm=False),
            lambda: llm.generate([value], params, use_tqdm=False),
            lambda: llm.generate({"prompt": value}, params, use_tqdm=False),
            lambda: llm.chat(value, params, use_tqdm=False),
            lambda: llm.chat([value], params, use_tqdm=False),
            lambda: llm.chat([{"role": "user", "content": value}], params, use_tqdm=False),
            lambda: llm.chat([{"role": value, "content": "a"}], params, use_tqdm=False),
            lambda: llm.chat([{"role": "user", "content": "a"}], params, use_tqdm=False, chat_template_kwargs=value),
        ):
            try:
                call()
            except (TypeError, ValueError):
                pass
    # The engine is as it was.
    assert llm.generate("a", params, use_tqdm=False)[0].finished
