from collections.abc import Callable
from typing import Any, final

from .outputs import RequestOutput

__all__ = ["EngineDeadError", "Engine", "Params", "Request", "ValidationError", "__version__", "serve_arguments"]

__version__: str

class ValidationError(ValueError):
    """An argument or a request that is wrong in itself."""

    parameter: str | None
    """The field at fault."""
    value: str | None
    """Its value as text, cut short."""

class EngineDeadError(RuntimeError):
    """The engine core is gone, by a crash or by shutdown()."""

def serve_arguments(arguments: list[tuple[str, bool | str]]) -> list[str]: ...
@final
class Params:
    def __new__(
        cls, json: str, *, detokenize: bool, output_kind: int, truncate_prompt_tokens: int | None
    ) -> Params: ...
    @property
    def warnings(self) -> list[str]: ...

@final
class Engine:
    def __new__(cls, arguments: list[tuple[str, bool | str]], executable: str) -> Engine: ...
    def request(
        self,
        request_id: str,
        params: Params,
        *,
        text: str | None = None,
        token_ids: list[int] | None = None,
        chat: str | None = None,
        priority: int = 0,
        seed: int | None = None,
    ) -> Request: ...
    def default_sampling_params(self) -> dict[str, Any]: ...
    @property
    def max_model_len(self) -> int: ...
    def shutdown(self) -> None: ...

@final
class Request:
    def start(self) -> None: ...
    def wait(self) -> RequestOutput | None: ...
    def next(self, callback: Callable[[RequestOutput | None, BaseException | None], object]) -> None: ...
    def abort(self) -> None: ...
