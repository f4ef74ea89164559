"""XGrammar's API, over Formwork's grammar engine.

    import formwork.compat.xgrammar as xgr

or `install()`, after which `import xgrammar` gives this package. docs/python.md lists what is there, what
isn't, and what differs. What can't be enforced raises; nothing is dropped silently. It needs pydantic, and
torch where a tensor is made or masked.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

from . import exception, openai_tool_call_schema, structural_tag, testing
from .builtin_structural_tag import (
    get_builtin_structural_tag,
    get_model_structural_tag,
    normalize_tool_choice,
    register_model_structural_tag,
)
from .compiler import CompiledGrammar, GrammarCompiler
from .config import (
    get_max_recursion_depth,
    get_serialization_version,
    max_recursion_depth,
    set_max_recursion_depth,
)
from .exception import (
    DeserializeFormatError,
    DeserializeVersionError,
    InvalidJSONError,
    InvalidStructuralTagError,
)
from .grammar import Grammar
from .matcher import (
    BatchGrammarMatcher,
    GrammarMatcher,
    allocate_token_bitmask,
    apply_token_bitmask_inplace,
    get_bitmask_shape,
    reset_token_bitmask,
)
from .structural_tag import StructuralTag, StructuralTagItem
from .tokenizer_info import TokenizerInfo, VocabType

__all__ = [
    "BatchGrammarMatcher",
    "CompiledGrammar",
    "DeserializeFormatError",
    "DeserializeVersionError",
    "Grammar",
    "GrammarCompiler",
    "GrammarMatcher",
    "InvalidJSONError",
    "InvalidStructuralTagError",
    "StructuralTag",
    "StructuralTagItem",
    "TokenizerInfo",
    "VocabType",
    "allocate_token_bitmask",
    "apply_token_bitmask_inplace",
    "exception",
    "get_bitmask_shape",
    "get_builtin_structural_tag",
    "get_max_recursion_depth",
    "get_model_structural_tag",
    "get_serialization_version",
    "install",
    "max_recursion_depth",
    "normalize_tool_choice",
    "openai_tool_call_schema",
    "register_model_structural_tag",
    "reset_token_bitmask",
    "set_max_recursion_depth",
    "structural_tag",
    "testing",
]

# The modules that XGrammar has by these names; contrib.hf imports torch.
_MODULES = (
    "builtin_structural_tag",
    "compiler",
    "config",
    "contrib",
    "exception",
    "grammar",
    "kernels",
    "matcher",
    "openai_tool_call_schema",
    "structural_tag",
    "testing",
    "tokenizer_info",
)


def __getattr__(name: str) -> Any:
    if name == "bitmask_dtype":
        import torch

        return torch.int32
    if name == "hf":
        return importlib.import_module(".contrib.hf", __name__)
    if name in ("contrib", "kernels"):
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def install() -> None:
    """Lets `import xgrammar`, and of its modules, give this package, in this process.

    Raises:
        RuntimeError: another xgrammar was imported before.
    """
    this = sys.modules[__name__]
    if sys.modules.setdefault("xgrammar", this) is not this:
        raise RuntimeError("xgrammar was imported already: call install() before the first import of it")
    # Under both names each module is one, so that each of its classes is.
    names = [*_MODULES, "contrib.hf"] if importlib.util.find_spec("torch") else _MODULES
    for name in names:
        sys.modules[f"xgrammar.{name}"] = importlib.import_module(f".{name}", __name__)
    kernels = sys.modules["xgrammar.kernels"]
    for name in kernels.__all__:
        sys.modules[f"xgrammar.kernels.{name}"] = kernels
