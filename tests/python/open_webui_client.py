"""Open WebUI's own server. Argument: the base URL of a server with a context of 32K tokens. Its key is
"secret".

The package's whole application runs in this process: log-in, SQLite database, prompts, tools, the API that
its page calls, and its requests to the server. This script plays the page, which does not run. Modules
without content stand in for the packages of `STAND_INS`: these read documents, search in them, handle
images and sound, store files elsewhere, log in with LDAP or a second factor, format code, repeat chats by
a calendar, or talk to MCP servers. No chat here calls them.
"""

import asyncio
import importlib.abc
import importlib.machinery
import json
import os
import secrets
import sys
import tempfile
import types

import aiohttp
import httpx
import jsonschema

base_url = sys.argv[1]
known = httpx.get(f"{base_url}/models", headers={"Authorization": "Bearer secret"}).json()
model = known["data"][0]["id"]
folder = tempfile.TemporaryDirectory()
os.environ |= {
    "DATA_DIR": folder.name,
    "DATABASE_URL": f"sqlite:///{folder.name}/webui.db",
    "ENABLE_AUTOCOMPLETE_GENERATION": "true",
    "ENABLE_COMPRESSION_MIDDLEWARE": "false",
    "ENABLE_OLLAMA_API": "false",
    "FROM_INIT_PY": "true",  # As `open-webui serve` sets it.
    "GLOBAL_LOG_LEVEL": "ERROR",
    "OFFLINE_MODE": "true",
    "OPENAI_API_BASE_URL": base_url,
    "OPENAI_API_KEY": "secret",
    "RAG_EMBEDDING_ENGINE": "openai",  # Else it loads a model.
    "REDIS_URL": "",
    "STATIC_DIR": f"{folder.name}/static",
    "WEBUI_ADMIN_EMAIL": "ada@example.com",
    "WEBUI_ADMIN_PASSWORD": "secret",
    "WEBUI_SECRET_KEY": secrets.token_hex(32),
}

STAND_INS = set(
    "PIL azure black boto3 botocore chromadb dateutil google langchain_classic langchain_text_splitters"
    " ldap3 mcp numpy pydub pyotp qrcode re2".split()
)


class StandIn(type):
    """A class whose attributes are such classes."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn(name, (), {"__init__": lambda self, *_, **__: None})


class StandInModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of `STAND_INS` that are not installed."""

    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in STAND_INS:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = lambda name: StandIn.__getattr__(StandIn, name)
        return module

    def exec_module(self, module):
        pass


sys.meta_path.append(StandInModules())

sent = []  # The path and the body of each request to the server.
unrecorded = aiohttp.ClientSession._request


async def recorded(session, method, url, **options):
    response = await unrecorded(session, method, url, **options)
    assert str(url).startswith(base_url), url
    assert response.status == 200, (options.get("data"), await response.text())
    assert response.request_info.headers["Authorization"] == "Bearer secret"
    sent.append((str(url).removeprefix(base_url), json.loads(options.get("data") or "null")))
    return response


aiohttp.ClientSession._request = recorded

from open_webui.main import app  # noqa: E402

QUESTION = "What is the weather in Lisbon?"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "sunny": {"type": "boolean"}},
    "required": ["city", "sunny"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA, "strict": True}}
STRINGS = {"type": "array", "items": {"type": "string", "maxLength": 8}, "minItems": 1, "maxItems": 2}
TASK_SCHEMA = {
    "type": "object",
    "properties": {"title": {"enum": ["Weather"]}, "tags": STRINGS, "follow_ups": STRINGS},
    "required": ["title", "tags", "follow_ups"],
    "additionalProperties": False,
}
TASK_FORMAT = {"type": "json_schema", "json_schema": {"name": "task", "schema": TASK_SCHEMA}}
TOOL = '''
class Tools:
    def get_weather(self, city: str) -> str:
        """
        Get the weather of a city.
        :param city: The city
        """
        return f"Sunny in {city}."
'''


def requests():
    """The requests since the last call."""
    those = sent[:]
    sent.clear()
    return those


async def post(page, path, body):
    response = await page.post(path, json=body)
    assert response.status_code == 200, (path, response.text)
    return response


async def ask(page, **more):
    """A chat by Open WebUI's own API, which isn't kept."""
    body = {"model": model, "messages": [{"role": "user", "content": QUESTION}], **more}
    return await post(page, "/api/chat/completions", body)


async def chat(page, text, **more):
    """A new chat as the page begins one; its end. Answers go to the database, from where it is read."""
    question = {"id": "question", "parentId": None, "childrenIds": [], "role": "user", "content": text}
    body = {
        "stream": True,
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "params": {},
        "features": {"image_generation": False, "code_interpreter": False, "web_search": False},
        "variables": {"{{USER_NAME}}": "Ada"},
        "session_id": "session",
        "parent_id": None,
        "id": "answer",
        "user_message": question,
        **more,
    }
    started = (await post(page, "/api/chat/completions", body)).json()
    while (await page.get(f"/api/tasks/chat/{started['chat_id']}")).json()["task_ids"]:
        await asyncio.sleep(0.1)
    kept = (await page.get(f"/api/v1/chats/{started['chat_id']}")).json()
    answer = kept["chat"]["history"]["messages"]["answer"]
    assert answer["done"] and "error" not in answer, answer
    return kept, answer


def events(stream):
    """The events of a stream before its end."""
    *those, end, nothing = stream.text.split("\n\n")
    assert end == "data: [DONE]" and nothing == "", stream.text
    return [json.loads(event.removeprefix("data: ")) for event in those]


async def has_a_model(page, name, **params):
    """Adds a model to the workspace: the server's with parameters, and without built-in tools."""
    meta = {"capabilities": {"usage": True, "builtin_tools": False}}
    workspace = {"id": name, "name": name, "base_model_id": model, "meta": meta, "params": params}
    await post(page, "/api/v1/models/create", workspace)
    assert name in [each["id"] for each in (await page.get("/api/models?refresh=true")).json()["data"]]
    requests()


def called(answer):
    """The result of the only call of `get_weather`."""
    call, result = [each for each in answer["output"] if each["type"].startswith("function_call")]
    assert call["name"] == "get_weather" and json.loads(call["arguments"]) == {"city": "Lisbon"}, call
    return result["output"][0]["text"]


async def connects(page):
    """What Settings → Connections asks for."""
    names = await post(page, "/openai/verify", {"url": base_url, "key": "secret"})
    assert [each["id"] for each in names.json()["data"]] == [model], names.text
    names = await page.get("/api/models")
    assert [each["id"] for each in names.json()["data"]] == [model], names.text
    assert requests() == [("/models", None)] * 2


async def answers(page):
    whole = (await ask(page, max_tokens=40)).json()
    assert whole["choices"][0]["message"]["content"], whole
    pieces = events(
        await ask(page, stream=True, stream_options={"include_usage": True}, max_tokens=40)
    )
    assert "".join(c["delta"].get("content") or "" for p in pieces for c in p["choices"])
    assert pieces[-1]["usage"]["completion_tokens"] > 0, pieces[-1]
    assert [path for path, _ in requests()] == ["/chat/completions"] * 2


async def has_a_chat_of_the_page(page):
    """With Open WebUI's built-in tools; then a title, tags and what might be asked next, in a form to
    which an administrator's parameters hold them."""
    path = "/api/v1/tasks/config"
    config = (await page.get(path)).json()
    held = {"temperature": 0, "max_tokens": 300, "custom_params": {"response_format": TASK_FORMAT}}
    await post(page, f"{path}/update", config | {"TASK_MODEL_PARAMS": held})
    tasks = {"title_generation": True, "tags_generation": True, "follow_up_generation": True}
    params = {"temperature": 0, "max_tokens": 20}
    kept, answer = await chat(page, QUESTION, background_tasks=tasks, params=params)
    assert answer["content"], answer
    asked = [body for _, body in requests()]
    (whole,) = [body for body in asked if body["stream"]]
    assert len(whole["tools"]) > 20 and "tool_choice" not in whole, whole
    assert [body["response_format"] for body in asked if not body["stream"]] == [TASK_FORMAT] * 3
    assert kept["meta"]["tags"] and answer["followUps"], (kept, answer)
    while kept["title"] == QUESTION:  # Its request is no task of the chat.
        await asyncio.sleep(0.1)
        kept = (await page.get(f"/api/v1/chats/{kept['id']}")).json()
    assert kept["title"] == "Weather", kept["title"]


async def sends_parameters(page):
    """A model of the workspace: with a system prompt, parameters and a schema as a custom parameter."""
    params = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 20,
        "min_p": 0.01,
        "seed": 7,
        "stop": ["END"],
        "max_tokens": 200,
        "frequency_penalty": 0.1,
        "presence_penalty": 0.1,
        "reasoning_effort": "low",
    }
    custom = {"response_format": json.dumps(FORMAT), "repetition_penalty": "1.05"}
    more = {"system": "Answer {{USER_NAME}} in JSON.", "logit_bias": "5:-100", "custom_params": custom}
    await has_a_model(page, "reporter", **params, **more)
    _, answer = await chat(page, QUESTION, model="reporter")
    jsonschema.validate(json.loads(answer["content"]), SCHEMA)
    assert answer["usage"]["completion_tokens"] > 0, answer
    system = {"role": "system", "content": "Answer Ada in JSON."}
    body = {
        "model": model,
        "messages": [system, {"role": "user", "content": QUESTION}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "logit_bias": {"5": -100},
        "response_format": FORMAT,
        "repetition_penalty": 1.05,
        **params,
    }
    assert requests() == [("/chat/completions", body)]


async def calls_tools(page):
    """A tool of the workspace: called, run here, and its answer sent back."""
    tool = {"id": "weather", "name": "Weather", "content": TOOL, "meta": {"description": "Weather"}}
    await post(page, "/api/v1/tools/create", tool)
    await has_a_model(page, "caller", temperature=0, max_tokens=40)
    _, answer = await chat(page, QUESTION, model="caller", tool_ids=["weather"])
    assert answer["content"] and called(answer) == "Sunny in Lisbon.", answer
    (_, first), (_, second) = requests()
    assert [each["function"]["name"] for each in first["tools"]] == ["get_weather"], first
    _, call, result = second["messages"]
    assert call["tool_calls"][0]["function"]["name"] == "get_weather", second
    assert result["role"] == "tool" and result["content"] == "Sunny in Lisbon.", second


async def asks_by_habit(page):
    """What its page and its searches ask for at other times."""
    messages = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": "Sunny."}]
    tasks = {
        "emoji": {"prompt": QUESTION},
        "queries": {"messages": messages, "type": "web_search"},
        "auto": {"prompt": "What is", "messages": messages, "type": "search query"},
        "image_prompt": {"messages": messages},
        "moa": {"prompt": QUESTION, "responses": ["Sunny.", "Rain."], "stream": True},
    }
    for task, body in tasks.items():
        answer = await post(page, f"/api/v1/tasks/{task}/completions", {"model": model, **body})
        if task == "moa":
            assert events(answer)
        else:
            assert answer.json()["choices"][0]["message"]["content"], (task, answer.text)
    assert [path for path, _ in requests()] == ["/chat/completions"] * len(tasks)


async def speaks_the_responses_api(page):
    """A connection whose type of API is "Responses"."""
    connection = {
        "ENABLE_OPENAI_API": True,
        "OPENAI_API_BASE_URLS": [base_url],
        "OPENAI_API_KEYS": ["secret"],
        "OPENAI_API_CONFIGS": {"0": {"enable": True, "api_type": "responses"}},
    }
    await post(page, "/openai/config/update", connection)
    form = {"type": "json_schema", "name": "weather", "schema": SCHEMA, "strict": True}
    custom = {"text": json.dumps({"format": form})}
    await has_a_model(page, "responder", temperature=0.5, seed=7, max_tokens=200, custom_params=custom)
    _, answer = await chat(page, QUESTION, model="responder")
    jsonschema.validate(json.loads(answer["content"]), SCHEMA)
    _, answer = await chat(page, QUESTION, model="caller", tool_ids=["weather"])
    assert answer["content"] and called(answer) == "Sunny in Lisbon.", answer
    assert [path for path, _ in requests()] == ["/responses"] * 3


async def main():
    async with app.router.lifespan_context(app):
        # Gives each answer whole: a stream is read when it has ended.
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://page", timeout=120) as page:
            ada = {"email": "ada@example.com", "password": "secret"}
            token = (await post(page, "/api/v1/auths/signin", ada)).json()["token"]
            page.headers["Authorization"] = f"Bearer {token}"
            await connects(page)
            await answers(page)
            await has_a_chat_of_the_page(page)
            await sends_parameters(page)
            await calls_tools(page)
            await asks_by_habit(page)
            await speaks_the_responses_api(page)


asyncio.run(asyncio.wait_for(main(), 240))
