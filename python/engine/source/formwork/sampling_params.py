"""Sampling parameters, by vLLM's names. Values are checked by the reader of the server's API: a wrong one raises
`ValidationError` (a `ValueError`) that names the field."""

from __future__ import annotations

import json as _json
import reprlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from . import _engine


class RequestOutputKind(Enum):
    """How much of an answer an output of `AsyncLLM` has. `LLM` always gives the whole."""

    CUMULATIVE = 0
    """Everything so far."""
    DELTA = 1
    """What is new."""
    FINAL_ONLY = 2
    """One output at the end, with everything."""


@dataclass
class StructuredOutputsParams:
    """What an answer must be: one of `json`, `regex`, `choice`, `grammar`, `json_object` and `structural_tag`.

    `json` is a JSON Schema as an object, as its text, or as a pydantic model class. The other fields are options;
    None leaves each to the engine. Whether a constraint can be enforced is found when a request has it.
    """

    json: Any = None
    """JSON Schema: dict, bool, str, or a pydantic model class."""
    regex: str | None = None
    """Pattern of the whole answer."""
    choice: list[str] | None = None
    """Texts, one of which is the answer."""
    grammar: str | None = None
    """Grammar: EBNF, GBNF or Lark."""
    json_object: bool | None = None
    """True: any JSON object."""
    disable_any_whitespace: bool = False
    """True: no white space around JSON's signs."""
    disable_additional_properties: bool = False
    """True: objects have no properties but those that the schema names."""
    whitespace_pattern: str | None = None
    """Pattern of the white space around JSON's signs."""
    structural_tag: str | dict[str, Any] | None = None
    """Structural tag: its text or object."""
    complete_within_max_tokens: bool | None = None
    """False: `max_tokens` may cut an answer off. By default it is led to its end in time. Formwork's own."""

    def __post_init__(self) -> None:
        kinds = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
        given = [name for name in kinds if getattr(self, name) is not None]
        if len(given) != 1:
            names = " and ".join(given) or "none"
            raise ValueError(f"structured_outputs must have one of {', '.join(kinds)}, got {names}")

    def _to_json(self) -> dict[str, Any]:
        """Fields that aren't at their default, as the API has them."""
        given = _given(self)
        schema = given.get("json")
        if isinstance(schema, type) and hasattr(schema, "model_json_schema"):
            given["json"] = schema.model_json_schema()
        return given


@dataclass
class GuidedDecodingParams(StructuredOutputsParams):
    """The older name of `StructuredOutputsParams`, for `SamplingParams(guided_decoding=...)`.

    `backend` is accepted and changes nothing: one engine serves all constraints.
    """

    backend: str | None = None

    def _to_json(self) -> dict[str, Any]:
        given = super()._to_json()
        given.pop("backend", None)
        return given


@dataclass
class RepetitionDetectionParams:
    """When an answer that repeats itself ends: a pattern of `min_pattern_size` to `max_pattern_size` tokens stands
    there `min_count` times. A `max_pattern_size` of 0 is off."""

    max_pattern_size: int = 0
    min_pattern_size: int = 0
    min_count: int = 0

    def _to_json(self) -> dict[str, Any]:
        return _given(self)


@dataclass(kw_only=True)
class SamplingParams:
    """How answers are sampled. Defaults are vLLM's; the model's own are `LLM.get_default_sampling_params`.

    Raises `ValidationError` about the first field that is wrong whatever the model is. What depends on the model,
    such as the size of its vocabulary, is checked with a request.
    """

    n: int = 1
    """Answers to each prompt, 1 to 16384."""
    presence_penalty: float = 0.0
    """-2 to 2: above 0, tokens that the answer has already are less likely."""
    frequency_penalty: float = 0.0
    """-2 to 2: the same, by how often."""
    repetition_penalty: float = 1.0
    """Above 0: over 1, tokens of prompt and answer are less likely."""
    temperature: float = 1.0
    """0 to 2; 0 takes the most likely token."""
    top_p: float = 1.0
    """Above 0 to 1: the most likely tokens that have this probability together."""
    top_k: int = 0
    """So many most likely tokens; 0 or -1 for all."""
    min_p: float = 0.0
    """0 to 1: tokens at least so likely, relative to the most likely."""
    seed: int | None = None
    """Seed, for answers that can be had again."""
    stop: str | list[str] | None = None
    """Texts that end an answer."""
    stop_token_ids: list[int] | None = None
    """Tokens that end an answer."""
    ignore_eos: bool = False
    """True: goes on after the model's end-of-text token."""
    max_tokens: int | None = 16
    """Most tokens of an answer; None for as many as the context has room for."""
    min_tokens: int = 0
    """Fewest tokens of an answer."""
    logprobs: int | None = None
    """Logprobs of so many most likely tokens beside the chosen one's; -1 for all; None for none."""
    prompt_logprobs: int | None = None
    """The same of the prompt's tokens."""
    logprob_token_ids: list[int] | None = None
    """Tokens whose logprobs are shown, with `logprobs`."""
    flat_logprobs: bool = False
    """Accepted; logprobs are lists of dicts either way."""
    detokenize: bool = True
    """False: answers have no text, only tokens."""
    skip_special_tokens: bool = True
    """True: special tokens are no part of the text."""
    spaces_between_special_tokens: bool = True
    """True: a space between special tokens in the text."""
    include_stop_str_in_output: bool = False
    """True: the text ends with the stop text that was found."""
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    """How much each output of `AsyncLLM` has."""
    truncate_prompt_tokens: int | None = None
    """Last tokens of a longer prompt that stay; -1 for as many as leave room for the answer; None refuses it."""
    structured_outputs: StructuredOutputsParams | None = None
    """What the answer must be."""
    guided_decoding: StructuredOutputsParams | None = None
    """The older name of `structured_outputs`."""
    logit_bias: dict[int, float] | None = None
    """Added to the logits of these tokens, -100 to 100."""
    allowed_token_ids: list[int] | None = None
    """Tokens that may be chosen, and no others."""
    bad_words: list[str] | None = None
    """Texts that no answer has."""
    extra_args: dict[str, Any] | None = None
    """For plug-ins, of which there are none: None or empty."""
    thinking_token_budget: int | None = None
    """Most tokens of the model's thinking."""
    repetition_detection: RepetitionDetectionParams | None = None
    """When an answer that repeats itself ends."""

    def __post_init__(self) -> None:
        for warning in self._to_native().warnings:
            # Beyond this and the dataclass's __init__.
            warnings.warn(warning, stacklevel=3)

    def _to_native(self, output_kind: RequestOutputKind | None = None) -> _engine.Params:
        """The parameters as the engine has them, read anew: fields may have changed."""
        kind = self.output_kind if output_kind is None else output_kind
        if not isinstance(kind, RequestOutputKind):
            raise TypeError(f"output_kind must be a RequestOutputKind, got {reprlib.repr(kind)}")
        if not isinstance(self.detokenize, bool):
            raise TypeError(f"detokenize must be True or False, got {reprlib.repr(self.detokenize)}")
        if self.truncate_prompt_tokens is not None:
            check_int64("truncate_prompt_tokens", self.truncate_prompt_tokens)
        given = _given(self)
        for name in ("detokenize", "output_kind", "truncate_prompt_tokens"):
            given.pop(name, None)
        older = given.pop("guided_decoding", None)
        if older is not None:
            if "structured_outputs" in given:
                raise ValueError("structured_outputs and its older name guided_decoding are both given: give one of them")
            given["structured_outputs"] = older
        # The API's default is the rest of the context, which is None here.
        given["max_tokens"] = self.max_tokens
        for name in ("structured_outputs", "repetition_detection"):
            value = given.get(name)
            if isinstance(value, (StructuredOutputsParams, RepetitionDetectionParams)):
                given[name] = value._to_json()
        return _engine.Params(
            to_json("sampling_params", given),
            detokenize=self.detokenize,
            output_kind=kind.value,
            truncate_prompt_tokens=self.truncate_prompt_tokens,
        )


def to_json(field: str, value: Any) -> str:
    """The text of `value` as JSON. Raises `ValueError` that names the field where a part of it is none."""
    try:
        return _json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{field} must be made of what JSON has: {error}") from error


def check_int64(field: str, value: Any) -> None:
    """Raises `TypeError` or `ValueError` that names the field where `value` is no whole number of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{field} must be a whole number, got {reprlib.repr(value)}")
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{field} must be a whole number of 64 bits, got {reprlib.repr(value)}")


def _given(params: Any) -> dict[str, Any]:
    """Fields that aren't at their default."""
    return {field.name: value for field in fields(params) if (value := getattr(params, field.name)) != field.default}


def native(params: SamplingParams | Sequence[SamplingParams], count: int) -> list[_engine.Params]:
    """The parameters of each of `count` prompts, for whole answers. Raises `ValueError` for another number of them."""
    if isinstance(params, SamplingParams):
        return [params._to_native(RequestOutputKind.FINAL_ONLY)] * count
    if not isinstance(params, Sequence) or not all(isinstance(item, SamplingParams) for item in params):
        raise TypeError(f"sampling_params must be SamplingParams or a list of them, got {type(params).__name__}")
    if len(params) != count:
        raise ValueError(f"sampling_params must be one, or one for each prompt: got {len(params)} for {count} prompts")
    return [item._to_native(RequestOutputKind.FINAL_ONLY) for item in params]
