"""Formwork as SGLang's grammar backend: entry point `sglang.srt.plugins`, chosen by `--grammar-backend formwork`.

Nothing of SGLang is imported before `register` is called.
"""

from __future__ import annotations

from typing import Any

from . import _host

__all__ = ["register"]

NAME = "formwork"


def register() -> None:
    """Makes `formwork` a grammar backend of SGLang, by SGLang's own registration. SGLang calls it in each process.

    The version is checked where the backend is chosen: others who have both installed should see no error.

    Raises:
        ImportError: SGLang has no such registration; the message names the series that has.
    """
    try:
        from sglang.srt.arg_groups.choices import GRAMMAR_BACKEND_CHOICES, add_grammar_backend_choices
        from sglang.srt.constrained.base_grammar_backend import register_grammar_backend
    except ImportError:
        _host.require("sglang")
        raise
    if NAME not in GRAMMAR_BACKEND_CHOICES:
        add_grammar_backend_choices([NAME])
    register_grammar_backend(NAME, _create)


def _create(server_args: Any, tokenizer: Any, vocab_size: int, eos_token_ids: set[int] | None) -> Any:
    _host.require("sglang")
    from ._sglang_backend import create

    return create(server_args, tokenizer, vocab_size, eos_token_ids)
