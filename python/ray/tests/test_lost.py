"""How a stream ends whose server is lost, as the official clients read it. Needs no Ray."""

import asyncio
import http.server
import json
import threading

import pytest

from formwork.ray._lost import error_body, last_events, whole_events

MESSAGE = "the engine behind this answer is gone (formwork ended with exit code -9): send the request again"
MESSAGES_BEGIN = (
    b'event: message_start\ndata: {"type": "message_start", "message": {"id": "1", "type": "message", "role": '
    b'"assistant", "content": [], "model": "m", "stop_reason": null, "stop_sequence": null, '
    b'"usage": {"input_tokens": 1, "output_tokens": 0}}}\n\n'
    b'event: content_block_start\ndata: {"type": "content_block_start", "index": 0, "content_block": '
    b'{"type": "text", "text": ""}}\n\n'
    b'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 0, "delta": '
    b'{"type": "text_delta", "text": "a"}}\n\n'
)
RESPONSES_BEGIN = (
    b'event: response.output_text.delta\ndata: {"type": "response.output_text.delta", "sequence_number": 7, "item_id": '
    b'"i", "output_index": 0, "content_index": 0, "delta": "\\"sequence_number\\": 99", "logprobs": []}\n\n'
)
CHAT_BEGIN = b'data: {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}\n\n'


class Answering(http.server.ThreadingHTTPServer):
    """Answers every request with the same."""

    def __init__(self, status, content_type, body):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(status)
                self.send_header("content-type", content_type)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


@pytest.fixture
def client_of():
    """A client of a package, and a server for it with one answer."""
    servers = []

    def start(kind, path, *answer):
        servers.append(Answering(*answer))
        url = f"http://127.0.0.1:{servers[-1].server_port}{path}"
        return kind(api_key="x", max_retries=0, base_url=url)

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def broken(path, begin):
    return "text/event-stream", begin + last_events(path, MESSAGE, "r", begin)


ASKED = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}


def test_anthropics_package_raises_where_a_stream_of_messages_is_lost(client_of):
    anthropic = pytest.importorskip("anthropic")
    seen = []
    with pytest.raises(anthropic.APIStatusError, match="exit code -9.*send the request again"):
        client = client_of(anthropic.Anthropic, "", 200, *broken("/v1/messages?beta=true", MESSAGES_BEGIN))
        for event in client.messages.create(**ASKED, stream=True):
            seen.append(event.type)
    assert seen == ["message_start", "content_block_start", "content_block_delta"]
    with pytest.raises(anthropic.APIStatusError):
        client = client_of(anthropic.Anthropic, "", 200, *broken("/v1/messages", MESSAGES_BEGIN))
        with client.messages.stream(**ASKED) as stream:
            stream.get_final_message()


def test_anthropics_package_reads_an_error_that_is_no_stream(client_of):
    anthropic = pytest.importorskip("anthropic")
    body = json.dumps(error_body("/v1/messages", MESSAGE)).encode()
    with pytest.raises(anthropic.APIStatusError) as caught:
        client_of(anthropic.Anthropic, "", 503, "application/json", body).messages.create(**ASKED)
    assert caught.value.status_code == 503
    assert caught.value.body["error"] == {"type": "overloaded_error", "message": MESSAGE}
    assert caught.value.body["request_id"].startswith("req_")


def test_openais_package_raises_where_a_stream_is_lost(client_of):
    openai = pytest.importorskip("openai")
    with pytest.raises(openai.APIError, match="send the request again"):
        client = client_of(openai.OpenAI, "/v1", 200, *broken("/v1/responses", RESPONSES_BEGIN))
        list(client.responses.create(model="m", input="x", stream=True))
    with pytest.raises(openai.APIError, match="send the request again"):
        client = client_of(openai.OpenAI, "/v1", 200, *broken("/v1/chat/completions", CHAT_BEGIN))
        list(client.chat.completions.create(model="m", messages=ASKED["messages"], stream=True))


def test_each_route_has_its_own_form():
    def event(path, last=b""):
        *name, data = last_events(path, MESSAGE, "r", last).decode().removesuffix("\n\n").split("\n", 1)
        return name, json.loads(data.removeprefix("data: "))

    lost = {"type": "overloaded_error", "message": MESSAGE}
    assert event("/v1/messages") == (["event: error"], {"type": "error", "error": lost, "request_id": "r"})
    openai = {"message": MESSAGE, "type": "service_unavailable", "param": None, "code": 503}
    name, data = event("/v1/responses", RESPONSES_BEGIN)
    assert name == ["event: error"] and data.pop("error") == openai
    assert data == {"type": "error", "sequence_number": 8, "code": "503", "message": MESSAGE, "param": None}
    assert event("/v1/responses")[1]["sequence_number"] == 0
    for path in ("/v1/chat/completions", "/v1/completions?a=/v1/messages", "/v1/messagesx"):
        assert last_events(path, MESSAGE, "r", b"") == f"data: {json.dumps({'error': openai})}\n\ndata: [DONE]\n\n".encode()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 10_000])
def test_events_come_whole_however_they_were_cut(size):
    """And a broken one isn't there at all."""
    text = b"data: a\n\nevent: e\ndata: b\n\ndata: half"

    async def read(is_broken):
        async def cut():
            for at in range(0, len(text), size):
                yield text[at : at + size]
            if is_broken:
                raise OSError("gone")

        pieces = []
        try:
            async for piece in whole_events(cut()):
                pieces.append(piece)
        except OSError:
            assert is_broken
        return pieces

    whole, parts = asyncio.run(read(False)), asyncio.run(read(True))
    assert b"".join(whole) == text and b"".join(parts) == text.removesuffix(b"data: half")
    assert all(piece.endswith(b"\n\n") for piece in parts)
