"""Formwork for Python: an inference engine with structured output at its heart.

`LLM` and `AsyncLLM` run a model in an engine core, a process of its own; `serve` starts the server. Names are vLLM's.
`formwork.grammar`, the grammar engine alone, is the wheel `formwork-grammar`, on which this one depends.
"""

# Other wheels fill `formwork.grammar`, `formwork.compat` and `formwork.ray`, which may lie in another folder.
__path__ = __import__("pkgutil").extend_path(__path__, __name__)

from ._engine import EngineDeadError, ValidationError, __version__
from ._serve import Server, serve
from .async_llm import AsyncLLM
from .llm import LLM, AsyncEngineArgs, EngineArgs, PromptType, TextPrompt, TokensPrompt
from .outputs import CompletionOutput, Logprob, RequestOutput
from .sampling_params import (
    GuidedDecodingParams,
    RepetitionDetectionParams,
    RequestOutputKind,
    SamplingParams,
    StructuredOutputsParams,
)

__all__ = [
    "LLM",
    "AsyncEngineArgs",
    "AsyncLLM",
    "CompletionOutput",
    "EngineArgs",
    "EngineDeadError",
    "GuidedDecodingParams",
    "Logprob",
    "PromptType",
    "RepetitionDetectionParams",
    "RequestOutput",
    "RequestOutputKind",
    "SamplingParams",
    "Server",
    "StructuredOutputsParams",
    "TextPrompt",
    "TokensPrompt",
    "ValidationError",
    "__version__",
    "serve",
]
