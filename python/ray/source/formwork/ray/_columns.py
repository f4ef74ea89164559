"""What an answered row has beside its own columns: a result of the batch format, flat."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

COLUMNS: dict[str, type] = {
    "answer": str,
    "message": str,
    "logprobs": str,
    "finish_reason": str,
    "structured_output_complete": bool,
    "prompt_tokens": int,
    "completion_tokens": int,
    "error": str,
}
"""Their names and types. Nothing in them depends on place or time, so a row that Ray computes twice is the same twice."""

_LINE_NUMBER = re.compile(r"^line \d+: ")


def seed_of(row: dict[str, Any], seed: int) -> int:
    """A row's seed, 0 to 2^62 - 1: a hash of `seed` and of all its columns, whatever the place or the time."""
    text = json.dumps([seed, row], sort_keys=True, default=str)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 2


def columns_of(result: dict[str, Any], row_hash: int) -> dict[str, Any]:
    """A result of the batch format as `COLUMNS`.

    The ids of its tool calls are made of `row_hash` and their places, since the server's are made anew each time.
    """
    columns: dict[str, Any] = dict.fromkeys(COLUMNS)
    response = result.get("response") or {}
    body = response.get("body") or {}
    error = result.get("error") or body.get("error")
    if error is not None or response.get("status_code") != 200:
        message = str((error or {}).get("message", "no message"))
        columns["error"] = _LINE_NUMBER.sub("", message)
        return columns
    choice = body["choices"][0]
    message = choice["message"]
    for place, call in enumerate(message.get("tool_calls") or ()):
        call["id"] = f"call_{row_hash:016x}_{place}"
    columns["answer"] = message.get("content")
    if any(value for name, value in message.items() if name not in ("role", "content")):
        columns["message"] = json.dumps(message, ensure_ascii=False)
    if choice.get("logprobs") is not None:
        columns["logprobs"] = json.dumps(choice["logprobs"], ensure_ascii=False)
    columns["finish_reason"] = choice["finish_reason"]
    columns["structured_output_complete"] = choice.get("structured_output_complete")
    columns["prompt_tokens"] = body["usage"]["prompt_tokens"]
    columns["completion_tokens"] = body["usage"]["completion_tokens"]
    return columns
