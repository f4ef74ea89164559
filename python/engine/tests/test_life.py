"""How an engine ends: with its program, by Ctrl-C, by a core that dies, and what a fork may do."""

import os
import signal
import subprocess
import sys
import warnings

import pytest

from conftest import cores
from formwork import LLM, EngineDeadError, SamplingParams

LONG = """
import signal
# A program that a shell starts in the background has it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from formwork import LLM, SamplingParams
engine = LLM(max_model_len=2048, threads=1)
def bar(requests, total, desc):
    print("runs", flush=True)
    return requests
try:
    engine.generate("a", SamplingParams(n=200, max_tokens=None, ignore_eos=True), use_tqdm=bar)
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(len(engine.generate("a", SamplingParams(max_tokens=3, ignore_eos=True), use_tqdm=False)[0].outputs[0].token_ids))
"""


def test_ctrl_c_ends_a_wait_and_the_engine_goes_on():
    program = subprocess.Popen([sys.executable, "-c", LONG], stdout=subprocess.PIPE, text=True)
    assert program.stdout.readline() == "runs\n"
    program.send_signal(signal.SIGINT)
    assert program.communicate()[0] == "interrupted\n3\n"
    assert program.returncode == 0


@pytest.mark.parametrize("end", ["", "import os; os._exit(0)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
def test_no_core_outlives_its_program(end):
    code = f"""
import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})
from conftest import cores
from formwork import LLM
engine = LLM(max_model_len=64, threads=1)
print(*cores(), flush=True)
{end}
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    (core,) = map(int, done.stdout.split())
    # It ends by itself: its connection is closed.
    while os.path.exists(f"/proc/{core}"):
        os.sched_yield()


def test_a_core_that_dies_ends_requests_with_a_reason():
    engine = LLM(max_model_len=64, threads=1)
    others = set(cores())
    engine = LLM(max_model_len=2048, threads=1)
    (core,) = set(cores()) - others

    def bar(requests, total, desc):
        os.kill(core, signal.SIGKILL)
        return requests

    endless = SamplingParams(n=50, max_tokens=None, ignore_eos=True)
    with pytest.raises(EngineDeadError, match="the engine core died"):
        engine.generate("a", endless, use_tqdm=bar)
    with pytest.raises(EngineDeadError):
        engine.generate("a", endless)
    engine.shutdown()
    engine.shutdown()
    with pytest.raises(EngineDeadError, match="make another"):
        engine.generate("a")


def test_a_fork_may_not_use_it(llm):
    with warnings.catch_warnings():
        # Of threads, by later versions of Python.
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        code = 1
        try:
            llm.generate("a", SamplingParams(), use_tqdm=False)
        except RuntimeError as error:
            code = 0 if "os.fork" in str(error) else 2
        finally:
            try:
                llm.shutdown()
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert llm.generate("a", SamplingParams(max_tokens=1), use_tqdm=False)[0].finished
