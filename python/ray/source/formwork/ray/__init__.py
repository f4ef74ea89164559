"""Formwork on Ray: `batch` for Ray Datasets, `batch_file` for OpenAI batch files, `serve_app` for Ray Serve.

Each actor or replica owns an engine, a process of Formwork's executables, which are looked for in the folder
`FORMWORK_BIN` and then in `PATH` of its node. `docs/ray.md` in the repository describes all of it.
"""

from ._engine import EngineError
from ._file import FileSummary, batch_file
from ._rows import batch
from ._serve import serve_app

__all__ = ["EngineError", "FileSummary", "batch", "batch_file", "serve_app"]
