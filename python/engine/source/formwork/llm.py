"""The engine for programs that wait for whole answers."""

from __future__ import annotations

import itertools
import os
import random
import reprlib
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, TypedDict, Union

from . import _engine
from ._arguments import pairs
from ._executables import find
from .outputs import RequestOutput
from .sampling_params import SamplingParams, check_int64, native, to_json


class TextPrompt(TypedDict):
    """A prompt as text."""

    prompt: str


class TokensPrompt(TypedDict):
    """A prompt as token ids."""

    prompt_token_ids: list[int]


PromptType = Union[str, list[int], TextPrompt, TokensPrompt]
"""A prompt: text, token ids, or a dict with one of both."""

Message = Mapping[str, Any]
"""A message of a conversation: `role`, `content` and what else the chat completions API has."""


def prompt_of(prompt: Any) -> dict[str, Any]:
    """A prompt as keyword arguments of `_engine.Engine.request`. Raises `TypeError` or `ValueError`."""
    if isinstance(prompt, Mapping):
        given = {name: value for name, value in prompt.items() if value is not None}
        if set(given) == {"prompt"}:
            prompt = given["prompt"]
        elif "prompt_token_ids" in given and set(given) <= {"prompt", "prompt_token_ids"}:
            prompt = given["prompt_token_ids"]
        else:
            raise ValueError(f"a prompt's dict must have prompt or prompt_token_ids, got {reprlib.repr(list(given))}")
    if isinstance(prompt, str):
        return {"text": prompt}
    if isinstance(prompt, Sequence) and not isinstance(prompt, (bytes, bytearray)):
        for token in prompt:
            if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < 2**32:
                raise ValueError(f"prompt_token_ids must be token ids, whole numbers from 0, got {reprlib.repr(token)}")
        return {"token_ids": list(prompt)}
    raise TypeError(f"a prompt must be text, a list of token ids, or a dict with one of them, got {type(prompt).__name__}")


def _prompts(prompts: Any) -> list[Any]:
    """Prompts as a list: one is a list of one."""
    is_tokens = isinstance(prompts, list) and bool(prompts) and isinstance(prompts[0], int)
    if isinstance(prompts, (str, Mapping)) or is_tokens:
        return [prompts]
    if not isinstance(prompts, Sequence) or isinstance(prompts, (bytes, bytearray)):
        raise TypeError(f"prompts must be a prompt or a list of prompts, got {type(prompts).__name__}")
    return list(prompts)


class EngineArgs:
    """Arguments of an engine, for `from_engine_args`; as attributes, by their names. `AsyncEngineArgs` is the same."""

    def __init__(self, model: str | os.PathLike[str] | None = None, **engine_args: Any) -> None:
        self.__dict__.update(engine_args, model=model)

    def __repr__(self) -> str:
        return f"EngineArgs({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


AsyncEngineArgs = EngineArgs


class BaseLLM:
    """An engine core and what this process knows of it. `LLM` and `AsyncLLM` have it in common."""

    def __init__(self, model: str | os.PathLike[str] | None = None, *, seed: int | None = None, **engine_args: Any) -> None:
        if seed is not None and not isinstance(seed, int):
            raise TypeError(f"seed must be a whole number, got {reprlib.repr(seed)}")
        executable = engine_args.pop("engine_core", None) or find("formwork-engine-core")
        self._engine = _engine.Engine(pairs({"model": model, **engine_args}), os.fsdecode(executable))
        self._seeds = None if seed is None else random.Random(seed)
        self._numbers = itertools.count()
        # At the end of the program too, where no object is sure to be deleted.
        self._end = weakref.finalize(self, self._engine.shutdown)

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs) -> Self:
        """The engine with these arguments."""
        return cls(**vars(engine_args))

    def get_default_sampling_params(self) -> SamplingParams:
        """Sampling parameters as the model's generation_config.json recommends them."""
        return SamplingParams(**self._engine.default_sampling_params())

    def shutdown(self) -> None:
        """Ends the engine core and waits for it. Requests in flight, and later ones, end with `EngineDeadError`."""
        self._end()

    @property
    def max_model_len(self) -> int:
        """Tokens of the longest sequence, prompt and answer together."""
        return self._engine.max_model_len

    def _seed(self) -> int | None:
        """The seed of the next request that has none."""
        return None if self._seeds is None else self._seeds.getrandbits(64)


class LLM(BaseLLM):
    """An engine with a core process of its own, for programs that wait for whole answers.

    - `model`: folder of a Hugging Face model, GGUF file, or name on the Hub (`Qwen/Qwen3-0.6B`), which is downloaded.
      None is the small built-in model.
    - `seed`: of requests without one of their own: the same calls give the same answers.
    - `engine_args`: the engine's flags as `formwork serve --help` has them, with `_` for `-`: `max_model_len=512`.

    Raises `ValidationError` for a wrong argument, `FileNotFoundError` where there is no such model, `RuntimeError`
    where it can't be loaded. Methods may be called in many threads.
    """

    def generate(
        self,
        prompts: PromptType | Sequence[PromptType],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool | Callable[..., Any] = True,
        priority: Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        """Continues prompts: all run at once, and outputs are in the prompts' order.

        - `prompts`: one, or a list.
        - `sampling_params`: for all, or one for each; None for the model's own.
        - `use_tqdm`: a bar of progress, where the package tqdm is there; or a function in its place.
        - `priority`: one for each prompt, lower runs earlier, with `scheduling_policy="priority"`.

        Raises `ValidationError` for the first prompt or parameter that is wrong; nothing is answered then.
        """
        given = [prompt_of(prompt) for prompt in _prompts(prompts)]
        return self._run(given, sampling_params, use_tqdm, priority)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool | Callable[..., Any] = True,
        *,
        chat_template: str | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Answers conversations, through the model's chat template.

        - `messages`: one conversation, a list of messages; or a list of conversations.
        - `chat_template`: a template in place of the model's.
        - `add_generation_prompt`: True if the template opens the assistant's turn.
        - `continue_final_message`: True if the answer continues the last message.
        - `tools`: functions that the template tells the model of. Answers aren't constrained to call them.
        - `chat_template_kwargs`: further variables of the template, such as `enable_thinking`.

        The rest is `generate`'s.
        """
        if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
            raise TypeError(f"messages must be a list of messages or of such lists, got {type(messages).__name__}")
        is_one = bool(messages) and isinstance(messages[0], Mapping)
        conversations = [messages] if is_one or not messages else list(messages)
        options = chat_options(chat_template, add_generation_prompt, continue_final_message, tools, chat_template_kwargs)
        given = [{"chat": to_json("messages", {"messages": conversation, **options})} for conversation in conversations]
        return self._run(given, sampling_params, use_tqdm, None)

    def _run(
        self,
        prompts: list[dict[str, Any]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        use_tqdm: bool | Callable[..., Any],
        priority: Sequence[int] | None,
    ) -> list[RequestOutput]:
        if sampling_params is None:
            sampling_params = self.get_default_sampling_params()
        if priority is not None and len(priority) != len(prompts):
            raise ValueError(f"priority must have one number for each prompt: got {len(priority)} for {len(prompts)}")
        for level in priority or ():
            check_int64("priority", level)
        requests = []
        # An error ends those that were sent: they are dropped.
        for i, (prompt, params) in enumerate(zip(prompts, native(sampling_params, len(prompts)))):
            number = str(next(self._numbers))
            lower = 0 if priority is None else priority[i]
            request = self._engine.request(number, params, priority=lower, seed=self._seed(), **prompt)
            request.start()
            requests.append(request)
        outputs = []
        for request in _with_progress(requests, use_tqdm):
            output = request.wait()
            assert output is not None, "a request that nobody has waited for has an output"
            outputs.append(output)
        return outputs


def chat_options(
    chat_template: str | None,
    add_generation_prompt: bool,
    continue_final_message: bool,
    tools: Sequence[Mapping[str, Any]] | None,
    chat_template_kwargs: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Fields of a chat completion that its prompt is made of, beside the messages."""
    options = {
        "chat_template": chat_template,
        "add_generation_prompt": add_generation_prompt,
        "continue_final_message": continue_final_message,
        "tools": tools,
        "chat_template_kwargs": chat_template_kwargs,
    }
    return {name: value for name, value in options.items() if value is not None}


def _with_progress(requests: list[_engine.Request], use_tqdm: bool | Callable[..., Any]) -> Iterable[_engine.Request]:
    """The requests, with a bar that grows as they are taken."""
    if not use_tqdm:
        return requests
    bar: Callable[..., Any]
    if callable(use_tqdm):
        bar = use_tqdm
    else:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            return requests
        bar = tqdm
    taken: Iterable[_engine.Request] = bar(requests, total=len(requests), desc="Processed prompts")
    return taken
