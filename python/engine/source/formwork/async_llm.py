"""The engine for asyncio."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from .llm import BaseLLM, Message, PromptType, chat_options, prompt_of
from .outputs import RequestOutput
from .sampling_params import SamplingParams, check_int64, to_json


class AsyncLLM(BaseLLM):
    """An engine with a core process of its own, for asyncio. Arguments and errors are those of `LLM`.

    Making one takes as long as the model loads, and waits for it: `await asyncio.to_thread(AsyncLLM, ...)` doesn't
    hold the event loop. Requests may come from several event loops.
    """

    async def generate(
        self,
        prompt: PromptType,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        priority: int = 0,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Continues a prompt. Gives outputs as they come, each with what `sampling_params.output_kind` says; a reader
        that lags gets fewer and larger ones. Leaving the loop, or cancelling its task, ends the request.

        Raises `ValidationError` where the request is wrong and `EngineDeadError` where the core is gone.
        """
        async for output in self._stream(prompt_of(prompt), sampling_params, request_id, priority):
            yield output

    async def chat(
        self,
        messages: Sequence[Message],
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        priority: int = 0,
        chat_template: str | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Answers a conversation as `LLM.chat` does, with outputs as `generate` gives them."""
        options = chat_options(chat_template, add_generation_prompt, continue_final_message, tools, chat_template_kwargs)
        chat = to_json("messages", {"messages": messages, **options})
        async for output in self._stream({"chat": chat}, sampling_params, request_id, priority):
            yield output

    async def _stream(
        self, prompt: dict[str, Any], sampling_params: SamplingParams | None, request_id: str | None, priority: int
    ) -> AsyncGenerator[RequestOutput, None]:
        check_int64("priority", priority)
        if sampling_params is None:
            sampling_params = self.get_default_sampling_params()
        number = str(next(self._numbers)) if request_id is None else request_id
        params = sampling_params._to_native()
        request = self._engine.request(number, params, priority=priority, seed=self._seed(), **prompt)
        loop = asyncio.get_running_loop()
        try:
            while True:
                future: asyncio.Future[RequestOutput | None] = loop.create_future()
                request.next(functools.partial(_settle, loop, future))
                output = await future
                if output is None:
                    return
                yield output
                if output.finished:
                    return
        finally:
            request.abort()


def _settle(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[RequestOutput | None],
    output: RequestOutput | None,
    error: BaseException | None,
) -> None:
    """Ends a future of another thread's event loop."""

    def settle() -> None:
        if future.done():
            return
        if error is None:
            future.set_result(output)
        else:
            future.set_exception(error)

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        # The loop is closed: nobody waits.
        pass
