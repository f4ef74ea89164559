"""Formwork in place of XGrammar in vLLM: entry point `vllm.general_plugins`, on by FORMWORK_VLLM=1.

vLLM has no registry of structured-output backends, so Formwork takes the place of `backend=xgrammar`, and of what
`auto` chooses. Nothing of vLLM is imported before `register` is called.
"""

from __future__ import annotations

from . import _host

__all__ = ["register"]


def register() -> None:
    """Puts Formwork in place of XGrammar, in this process, if FORMWORK_VLLM is 1. vLLM calls it in each.

    Raises:
        ImportError: another vLLM than the one that it is made for.
        ValueError: FORMWORK_VLLM is something else.
    """
    if not _host.is_on("FORMWORK_VLLM"):
        return
    _host.require("vllm")
    from . import _vllm_backend

    _vllm_backend.install()
