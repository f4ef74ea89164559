"""The executables that the wheel brings, without Rust in PATH: the server answers the client openai."""

import json
import os
import subprocess
import sys
import sysconfig

import pytest
from openai import OpenAI
from pydantic import BaseModel

import formwork

SCRIPTS = sysconfig.get_path("scripts")
ENVIRONMENT = {"PATH": f"{SCRIPTS}:/usr/bin:/bin", "HOME": os.environ.get("HOME", "/")}


class Person(BaseModel):
    name: str
    age: int


def ask(url):
    client = OpenAI(base_url=f"{url}/v1", api_key="none")
    model = client.models.list().data[0].id
    messages = [{"role": "user", "content": "Ann is 7."}]
    answer = client.chat.completions.parse(model=model, messages=messages, response_format=Person, max_tokens=60)
    client.close()
    return answer.choices[0].message.parsed


def test_formwork_serve_from_the_path():
    command = ["formwork", "serve", "--port", "0", "--max-model-len", "512", "--threads", "2"]
    server = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    try:
        assert isinstance(ask(server.stdout.readline().strip()), Person)
    finally:
        server.terminate()
        server.wait()
        server.stdout.close()


def test_serve_within_a_program():
    with formwork.serve(port=0, max_model_len=512, threads=2) as server:
        assert isinstance(ask(server.url), Person)
        process = server._process
    assert process.returncode == 0
    server.stop()


def test_serve_that_is_refused():
    with pytest.raises(formwork.ValidationError, match="no argument prot: its arguments are"):
        formwork.serve(prot=0)
    with pytest.raises(RuntimeError, match="ended with exit code 1"):
        formwork.serve("/nowhere/model", port=0)


def greedy_text():
    engine = formwork.LLM(threads=1)
    params = formwork.SamplingParams(temperature=0, max_tokens=3)
    (output,) = engine.generate("Once upon a time", params, use_tqdm=False)
    engine.shutdown()
    return output.outputs[0].text


def test_formwork_batch_from_the_path():
    body = {"prompt": "Once upon a time", "max_tokens": 3, "temperature": 0}
    line = json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": body})
    command = ["formwork-batch", "-i", "-", "-o", "-"]
    done = subprocess.run(command, env=ENVIRONMENT, input=line, stdout=subprocess.PIPE, text=True, check=True)
    (answer,) = map(json.loads, done.stdout.splitlines())
    # The engine is the same, however it is reached.
    assert answer["response"]["body"]["choices"][0]["text"] == greedy_text()


def test_the_module_runs_the_executable():
    done = subprocess.run([sys.executable, "-m", "formwork", "--version"], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == f"formwork {formwork.__version__}\n"


def test_both_wheels_fill_one_namespace():
    from formwork.grammar import __version__

    assert __version__ == formwork.__version__
