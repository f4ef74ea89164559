from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, final

__all__ = [
    "CancelFlag",
    "CompileError",
    "CompiledGrammar",
    "GrammarCompiler",
    "GrammarMatcher",
    "MatcherError",
    "TokenizerInfo",
    "__version__",
    "accept_token_batch",
    "apply_token_bitmask_inplace",
    "fill_next_token_bitmask_batch",
]

__version__: str

class CompileError(ValueError):
    kind: str
    message: str
    pointer: str | None
    line: int | None
    column: int | None
    offset: int | None
    option: str | None
    limit: str | None
    max: int | None

class MatcherError(RuntimeError):
    kind: str
    limit: str | None
    max: int | None

@final
class TokenizerInfo:
    def __new__(
        cls,
        vocab: Sequence[bytes],
        *,
        vocab_size: int | None = None,
        stop_token_ids: Sequence[int],
        special_token_ids: Sequence[int] = ...,
    ) -> TokenizerInfo: ...
    @staticmethod
    def from_tokenizer_json(
        json: str | bytes,
        *,
        config: str | bytes | None = None,
        vocab_size: int | None = None,
        stop_token_ids: Sequence[int] | None = None,
    ) -> TokenizerInfo: ...
    @staticmethod
    def from_path(
        path: str | PathLike[str],
        *,
        vocab_size: int | None = None,
        stop_token_ids: Sequence[int] | None = None,
    ) -> TokenizerInfo: ...
    @staticmethod
    def from_huggingface(
        tokenizer: Any,
        *,
        vocab_size: int | None = None,
        stop_token_ids: Sequence[int] | None = None,
    ) -> TokenizerInfo: ...
    @staticmethod
    def from_tiktoken(
        encoding: Any,
        *,
        vocab_size: int | None = None,
        stop_token_ids: Sequence[int] | None = None,
    ) -> TokenizerInfo: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def stop_token_ids(self) -> list[int]: ...
    @property
    def special_token_ids(self) -> list[int]: ...
    def token_bytes(self, token_id: int) -> bytes: ...
    def decoded_vocab(self) -> list[bytes]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]: ...

@final
class CancelFlag:
    def __new__(cls) -> CancelFlag: ...
    def cancel(self) -> None: ...
    def is_cancelled(self) -> bool: ...

@final
class CompiledGrammar:
    @property
    def compiler(self) -> GrammarCompiler: ...
    @property
    def tokenizer_info(self) -> TokenizerInfo: ...
    @property
    def memory_size_bytes(self) -> int: ...

@final
class GrammarCompiler:
    def __new__(
        cls,
        tokenizer_info: TokenizerInfo,
        *,
        cache_bytes: int | None = None,
        index_cache: str | PathLike[str] | None = None,
        any_escapes: bool = False,
    ) -> GrammarCompiler: ...
    def compile_json_schema(
        self, schema: Any, *, cancel: CancelFlag | None = None, **options: Any
    ) -> CompiledGrammar: ...
    def compile_json_object(
        self, *, cancel: CancelFlag | None = None, **options: Any
    ) -> CompiledGrammar: ...
    def compile_regex(
        self, pattern: str, *, cancel: CancelFlag | None = None
    ) -> CompiledGrammar: ...
    def compile_choice(
        self, choices: Sequence[str], *, cancel: CancelFlag | None = None
    ) -> CompiledGrammar: ...
    def compile_ebnf(
        self, grammar: str, root: str = ..., *, cancel: CancelFlag | None = None
    ) -> CompiledGrammar: ...
    def compile_lark(
        self, grammar: str, *, cancel: CancelFlag | None = None
    ) -> CompiledGrammar: ...
    def compile_grammar(
        self, grammar: str, *, cancel: CancelFlag | None = None
    ) -> CompiledGrammar: ...
    def compile_structural_tag(
        self, tag: str | Mapping[str, Any], *, cancel: CancelFlag | None = None
    ) -> CompiledGrammar: ...
    @property
    def tokenizer_info(self) -> TokenizerInfo: ...
    @property
    def num_compilations(self) -> int: ...
    def clear_cache(self) -> None: ...
    def get_cache_size_bytes(self) -> int: ...
    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]: ...

@final
class GrammarMatcher:
    def __new__(
        cls,
        compiled_grammar: CompiledGrammar,
        *,
        override_stop_tokens: Sequence[int] | None = None,
        terminate_without_stop_token: bool = False,
    ) -> GrammarMatcher: ...
    def fill_next_token_bitmask(self, bitmask: Any, index: int = 0) -> bool: ...
    def fill_next_token_bitmask_within(
        self, bitmask: Any, num_tokens: int, index: int = 0
    ) -> bool: ...
    def unsafe_fill_next_token_bitmask(self, address: int, words: int) -> bool: ...
    def next_token_ids(self) -> list[int]: ...
    def accept_token(self, token_id: int) -> bool: ...
    def accept_string(self, text: str | bytes) -> bool: ...
    def validate_tokens(self, token_ids: Sequence[int]) -> int: ...
    def rollback(self, num_tokens: int = 1) -> None: ...
    def reset(self) -> None: ...
    def fork(self) -> GrammarMatcher: ...
    def is_terminated(self) -> bool: ...
    def is_completed(self) -> bool: ...
    def find_jump_forward_string(self) -> str: ...
    def forced_tokens(self) -> list[int]: ...
    def min_tokens_to_complete(self) -> int: ...
    @property
    def num_accepted(self) -> int: ...
    @property
    def stop_token_ids(self) -> list[int]: ...
    @property
    def compiled_grammar(self) -> CompiledGrammar: ...

def apply_token_bitmask_inplace(
    logits: Any, bitmask: Any, indices: Sequence[int] | None = None
) -> None: ...
def fill_next_token_bitmask_batch(
    matchers: Sequence[GrammarMatcher],
    bitmask: Any,
    indices: Sequence[int] | None = None,
) -> list[bool]: ...
def accept_token_batch(
    matchers: Sequence[GrammarMatcher], token_ids: Sequence[int]
) -> list[bool]: ...
