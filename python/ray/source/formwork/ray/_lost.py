"""What a client is told whose answer is lost with its server: in the form that the route's own errors have."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any, AsyncIterator

_SEQUENCE_NUMBER = re.compile(rb'"sequence_number":\s*(\d+)')
"""Of an event of Responses. In a text of the model's the quotes would be escaped."""


def _is_of(path: str, route: str) -> bool:
    path = path.partition("?")[0]
    return path == route or path.startswith(route + "/")


def error_body(path: str, message: str, request_id: str = "") -> dict[str, Any]:
    """The body of an answer of status 503 to a request for `path`: Anthropic's form below `/v1/messages`, OpenAI's
    elsewhere. `request_id` is Anthropic's alone; without one it is made."""
    if _is_of(path, "/v1/messages"):
        request_id = request_id or f"req_{uuid.uuid4().hex}"
        return {"type": "error", "error": {"type": "overloaded_error", "message": message}, "request_id": request_id}
    return {"error": {"message": message, "type": "service_unavailable", "param": None, "code": 503}}


def last_events(path: str, message: str, request_id: str, last: bytes) -> bytes:
    """How a stream of `path` ends whose `last` piece was of whole events.

    Clients go by the event's name or by its data, each by its own, and skip what they don't know: Anthropic's packages
    everything without a name, OpenAI's raise where the data have an `error`.
    """
    error = error_body(path, message, request_id)
    if _is_of(path, "/v1/messages"):
        return f"event: error\ndata: {json.dumps(error)}\n\n".encode()
    if _is_of(path, "/v1/responses"):
        numbers = _SEQUENCE_NUMBER.findall(last)
        number = int(numbers[-1]) + 1 if numbers else 0
        fields = {"type": "error", "sequence_number": number, "code": "503", "message": message, "param": None}
        # `error` isn't of this API's event. OpenAI's packages would hand the event over as one of many without it.
        return f"event: error\ndata: {json.dumps({**fields, **error})}\n\n".encode()
    return f"data: {json.dumps(error)}\n\ndata: [DONE]\n\n".encode()


async def whole_events(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """A stream's bytes in pieces that end where an event does, but for the last.

    Where `pieces` raises, the beginning of an event is dropped: what follows would be taken for its rest.
    """
    held = bytearray()
    async for piece in pieces:
        held += piece
        end = held.rfind(b"\n\n", max(0, len(held) - len(piece) - 1)) + 2
        if end >= 2:
            yield bytes(held[:end])
            del held[:end]
    if held:
        yield bytes(held)
