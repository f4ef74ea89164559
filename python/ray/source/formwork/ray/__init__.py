"""Formwork on Ray: `batch` for Ray Datasets, `batch_file` for OpenAI batch files, `serve_app` for Ray Serve.

Each actor or replica owns an engine, a process of Formwork's executables, which are looked for in the folder
`FORMWORK_BIN` and then in `PATH` of its node. `docs/ray.md` in the repository describes all of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._file import FileSummary, batch_file
    from ._process import EngineError
    from ._rows import batch
    from ._serve import serve_app

__all__ = ["EngineError", "FileSummary", "batch", "batch_file", "serve_app"]

_MODULES = {
    "EngineError": "._process",
    "FileSummary": "._file",
    "batch": "._rows",
    "batch_file": "._file",
    "serve_app": "._serve",
}
"""Where each name is. Loaded when it is asked for: `ray.data` and `ray.serve` take seconds, in each actor anew."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name], __name__), name)
