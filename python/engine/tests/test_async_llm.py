"""AsyncLLM: streams, and requests that nobody reads to their end."""

import asyncio

import pytest

from formwork import AsyncEngineArgs, AsyncLLM, RequestOutputKind, SamplingParams, StructuredOutputsParams, ValidationError

PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def engine():
    engine = AsyncLLM(max_model_len=512, threads=2)
    yield engine
    engine.shutdown()


async def outputs(engine, prompt, params):
    return [output async for output in engine.generate(prompt, params)]


def test_cumulative_outputs_deltas_and_the_end_agree(engine):
    async def run():
        kinds = (RequestOutputKind.CUMULATIVE, RequestOutputKind.DELTA, RequestOutputKind.FINAL_ONLY)
        params = [SamplingParams(temperature=0, max_tokens=40, n=1, output_kind=kind) for kind in kinds]
        return await asyncio.gather(*(outputs(engine, PROMPT, each) for each in params))

    cumulative, deltas, final = asyncio.run(run())
    (whole,) = final
    answer = whole.outputs[0]
    assert len(answer.token_ids) == 40 and whole.finished
    texts = [output.outputs[0].text for output in cumulative]
    assert texts[-1] == answer.text
    assert all(later.startswith(earlier) for earlier, later in zip(texts, texts[1:]))
    assert "".join(output.outputs[0].text for output in deltas) == answer.text
    assert sum((output.outputs[0].token_ids for output in deltas), []) == answer.token_ids
    assert [output.finished for output in deltas[:-1]] == [False] * (len(deltas) - 1)


def test_conversations_and_ids(engine):
    async def run():
        chat = engine.chat([{"role": "user", "content": "Hi"}], SamplingParams(max_tokens=4), "mine")
        return [output async for output in chat]

    last = asyncio.run(run())[-1]
    assert last.request_id == "mine" and last.finished


def test_an_engine_from_vllms_arguments():
    """As vLLM's example of streams makes one and reads it."""

    async def run():
        args = AsyncEngineArgs(max_model_len=64, enforce_eager=True)
        assert repr(args) == "EngineArgs(max_model_len=64, enforce_eager=True, model=None)"
        engine = AsyncLLM.from_engine_args(args)
        params = SamplingParams(max_tokens=9, ignore_eos=True, output_kind=RequestOutputKind.DELTA)
        tokens = []
        async for output in engine.generate(request_id="stream-1", prompt=PROMPT, sampling_params=params):
            assert output.request_id == "stream-1"
            tokens += [token for completion in output.outputs for token in completion.token_ids]
        engine.shutdown()
        return tokens, output.finished

    tokens, finished = asyncio.run(run())
    assert len(tokens) == 9 and finished


def test_errors_come_by_the_stream(engine):
    async def run():
        with pytest.raises(ValidationError, match="out of range"):
            await outputs(engine, [99999], SamplingParams())
        constraint = StructuredOutputsParams(json={"type": "objekt"})
        with pytest.raises(ValidationError, match="objekt"):
            await outputs(engine, PROMPT, SamplingParams(structured_outputs=constraint))
        with pytest.raises(TypeError, match="a prompt must be"):
            await outputs(engine, 5, SamplingParams())

    asyncio.run(run())


def test_what_nobody_reads_ends(engine):
    """More than run at once: were they not ended, the last would wait for them. One that is left takes its part of
    max_model_len tokens."""
    endless = SamplingParams(max_tokens=None, ignore_eos=True)

    async def leave():
        async for output in engine.generate(PROMPT, endless):
            assert not output.finished
            return

    async def run():
        await asyncio.gather(*(leave() for _ in range(300)))
        tasks = [asyncio.create_task(outputs(engine, PROMPT, endless)) for _ in range(300)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ended)
        return await outputs(engine, PROMPT, SamplingParams(max_tokens=2))

    assert asyncio.run(run())[-1].finished
