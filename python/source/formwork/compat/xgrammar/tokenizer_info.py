"""Vocabularies, from their tokens as a tokenizer's files spell them."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from formwork import grammar as _formwork

from . import _serialization
from .exception import DeserializeFormatError, InvalidJSONError

__all__ = ["TokenizerInfo", "VocabType"]

# Names by which a stop token is known where none is given.
_STOP_TOKENS = {
    "</s>",
    "<eos>",
    "<end_of_turn>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|im_end|>",
}


class VocabType(enum.Enum):
    """How a vocabulary spells bytes."""

    RAW = 0
    BYTE_FALLBACK = 1
    BYTE_LEVEL = 2


def _byte_level_table() -> dict[str, int]:
    """GPT-2's characters for bytes: printable ones stand for themselves, the others follow from 256 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTE_OF = _byte_level_table()
_BYTE_LEVEL_CHARSET = frozenset(_BYTE_OF)
_BYTE_PIECES = frozenset(f"<0x{byte:02X}>" for byte in range(256))


def _decoded(token: str | bytes, vocab_type: VocabType) -> bytes:
    if isinstance(token, bytes):
        return token
    if vocab_type is VocabType.BYTE_FALLBACK:
        if match := re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", token):
            return bytes([int(match[1], 16)])
        return token.replace("\u2581", " ").encode()
    if vocab_type is VocabType.BYTE_LEVEL and all(sign in _BYTE_OF for sign in token):
        return bytes(_BYTE_OF[sign] for sign in token)
    return token.encode()


def _known_stop_tokens(tokens: Sequence[str | bytes]) -> list[int]:
    return [
        token_id
        for token_id, token in enumerate(tokens)
        if (token if isinstance(token, str) else token.decode(errors="replace")) in _STOP_TOKENS
    ]


class TokenizerInfo:
    """A vocabulary.

    Without a stop token, given or known by its name, no text ends but by `terminate_without_stop_token`. An
    empty vocabulary takes text, and no tokens.

    Args:
        encoded_vocab: tokens by id; empty for an id that is never allowed.
        vocab_type: how they spell bytes.
        vocab_size: width of the model's logits, the number of tokens where absent.
        stop_token_ids: tokens that end the text.
        add_prefix_space: kept for whoever asks; no mask depends on it.

    Raises:
        ValueError: an id out of range.
    """

    def __init__(
        self,
        encoded_vocab: Sequence[str | bytes],
        vocab_type: VocabType = VocabType.RAW,
        *,
        vocab_size: int | None = None,
        stop_token_ids: int | Sequence[int] | None = None,
        add_prefix_space: bool = False,
    ) -> None:
        if isinstance(stop_token_ids, int):
            stop_token_ids = [stop_token_ids]
        if stop_token_ids is None:
            stop_token_ids = _known_stop_tokens(encoded_vocab)
        tokens = [_decoded(token, vocab_type) for token in encoded_vocab]
        self._set(tokens, vocab_type, vocab_size, list(stop_token_ids), add_prefix_space)

    def _set(
        self,
        tokens: list[bytes],
        vocab_type: VocabType,
        vocab_size: int | None,
        stop_token_ids: list[int],
        add_prefix_space: bool,
    ) -> None:
        self._vocab_type, self._add_prefix_space = vocab_type, add_prefix_space
        self._vocab_size = len(tokens) if vocab_size is None else vocab_size
        del tokens[self._vocab_size :]
        self._tokens, self._stop_token_ids = tokens, stop_token_ids
        # The engine has no vocabulary without tokens or stop tokens: these get some that aren't shown.
        self._stands_in = not tokens or not stop_token_ids
        if self._stands_in:
            own = tokens + [b""] * (self._vocab_size - len(tokens)) or [bytes([b]) for b in range(256)]
            self._info = _formwork.TokenizerInfo(
                own + [b"</s>"], stop_token_ids=[len(own)], special_token_ids=[len(own)]
            )
        else:
            self._info = _formwork.TokenizerInfo(
                tokens,
                vocab_size=self._vocab_size,
                stop_token_ids=stop_token_ids,
                special_token_ids=stop_token_ids,
            )

    @staticmethod
    def from_huggingface(
        tokenizer: Any,
        *,
        vocab_size: int | None = None,
        stop_token_ids: int | Sequence[int] | None = None,
    ) -> TokenizerInfo:
        """From a tokenizer of transformers. `vocab_size` is the width of the model's logits.

        A fast one is read from its files, control tokens included; of others `get_vocab` says all.

        Raises:
            ValueError: stop_token_ids is empty; the tokenizer is of no known kind.
        """
        if isinstance(stop_token_ids, int):
            stop_token_ids = [stop_token_ids]
        if stop_token_ids is not None and not stop_token_ids:
            raise ValueError("stop_token_ids is empty: leave it None for the tokenizer's eos_token_id")
        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if not hasattr(backend, "to_str"):
            return TokenizerInfo._from_vocab_of(tokenizer, vocab_size, stop_token_ids)
        eos = getattr(tokenizer, "eos_token_id", None)
        if stop_token_ids is None and isinstance(eos, int):
            stop_token_ids = [eos]
        self = TokenizerInfo.__new__(TokenizerInfo)
        self._info = _formwork.TokenizerInfo.from_huggingface(
            tokenizer, vocab_size=vocab_size, stop_token_ids=stop_token_ids
        )
        self._stands_in = False
        self._vocab_size, self._stop_token_ids = self._info.vocab_size, self._info.stop_token_ids
        self._tokens = self._info.decoded_vocab()
        metadata = TokenizerInfo._detect_metadata_from_hf(backend.to_str())
        self._vocab_type = VocabType(metadata["vocab_type"])
        self._add_prefix_space = metadata["add_prefix_space"]
        return self

    @staticmethod
    def _from_vocab_of(
        tokenizer: Any, vocab_size: int | None, stop_token_ids: Sequence[int] | None
    ) -> TokenizerInfo:
        if not hasattr(tokenizer, "get_vocab"):
            raise ValueError(f"tokenizer must have get_vocab(), and {type(tokenizer).__name__} has not")
        vocab = tokenizer.get_vocab()
        size = vocab_size or max(len(vocab), max(vocab.values(), default=-1) + 1)
        tokens: list[str | bytes] = [""] * size
        for token, token_id in vocab.items():
            if token_id < size:
                tokens[token_id] = token
        if stop_token_ids is None and isinstance(getattr(tokenizer, "eos_token_id", None), int):
            stop_token_ids = [tokenizer.eos_token_id]
        vocab_type = TokenizerInfo._detect_vocab_type_from_vocab(
            [token for token in vocab if isinstance(token, str)]
        )
        return TokenizerInfo(
            tokens, vocab_type or VocabType.RAW, vocab_size=size, stop_token_ids=stop_token_ids
        )

    @staticmethod
    def _detect_vocab_type_from_vocab(vocab: Iterable[str]) -> VocabType | None:
        """The kind of a vocabulary by its spellings alone, or None where they are of neither kind."""
        spelled = set(vocab)
        if len(_BYTE_PIECES & spelled) >= 128:
            return VocabType.BYTE_FALLBACK
        within = sum(_BYTE_LEVEL_CHARSET.issuperset(token) for token in spelled)
        # Added tokens may have other signs.
        if len(_BYTE_LEVEL_CHARSET & spelled) >= 128 and within >= 0.99 * len(spelled):
            return VocabType.BYTE_LEVEL
        return None

    @staticmethod
    def _detect_metadata_from_hf(backend_str: str) -> dict[str, Any]:
        """`vocab_type` and `add_prefix_space` of a `tokenizer.json`."""
        parts = json.loads(backend_str)
        decoder = json.dumps(parts.get("decoder") or {})
        before = json.dumps([parts.get("normalizer") or {}, parts.get("pre_tokenizer") or {}])
        if '"ByteLevel"' in decoder:
            vocab_type = VocabType.BYTE_LEVEL
        elif '"ByteFallback"' in decoder:
            vocab_type = VocabType.BYTE_FALLBACK
        else:
            vocab_type = VocabType.RAW
        prefix = any(
            sign in before
            for sign in (
                '"add_prefix_space": true',
                '"prepend_scheme": "always"',
                '"prepend_scheme": "first"',
                '"prepend": "\\u2581"',
            )
        )
        return {"vocab_type": vocab_type.value, "add_prefix_space": prefix}

    @property
    def vocab_type(self) -> VocabType:
        """How the vocabulary spells bytes."""
        return self._vocab_type

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""
        return self._vocab_size

    @property
    def add_prefix_space(self) -> bool:
        """True if the tokenizer writes a space before a text."""
        return self._add_prefix_space

    @property
    def prepend_space_in_tokenization(self) -> bool:
        """The older name of `add_prefix_space`."""
        return self._add_prefix_space

    @property
    def decoded_vocab(self) -> list[bytes]:
        """The bytes of each token."""
        return list(self._tokens)

    @property
    def stop_token_ids(self) -> list[int]:
        """Tokens that end the text."""
        return list(self._stop_token_ids)

    @property
    def special_token_ids(self) -> list[int]:
        """Ids that write nothing and are never allowed, and a tokenizer's control tokens."""
        control = [] if self._stands_in else self._info.special_token_ids
        empty = [token_id for token_id, token in enumerate(self._tokens) if not token]
        padding = range(len(self._tokens), self._vocab_size)
        return sorted({*control, *empty, *padding} - set(self._stop_token_ids))

    def dump_metadata(self) -> str:
        """JSON of what `from_vocab_and_metadata` needs beside the tokens."""
        return json.dumps(
            {
                "vocab_type": self._vocab_type.value,
                "vocab_size": self._vocab_size,
                "add_prefix_space": self._add_prefix_space,
                "stop_token_ids": self._stop_token_ids,
            },
            separators=(",", ":"),
        )

    @staticmethod
    def from_vocab_and_metadata(encoded_vocab: Sequence[str | bytes], metadata: str) -> TokenizerInfo:
        """From tokens and what `dump_metadata` gave.

        Raises:
            InvalidJSONError: metadata is no JSON.
            DeserializeFormatError: it lacks a field.
        """
        try:
            fields = json.loads(metadata)
        except ValueError as error:
            raise InvalidJSONError(f"metadata is no JSON: {error}") from None
        try:
            return TokenizerInfo(
                encoded_vocab,
                VocabType(fields["vocab_type"]),
                vocab_size=fields["vocab_size"],
                stop_token_ids=fields["stop_token_ids"],
                add_prefix_space=fields["add_prefix_space"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DeserializeFormatError(f"metadata lacks a field, or has a wrong one: {error}") from None

    def serialize_json(self) -> str:
        """JSON of the whole vocabulary; bytes stand as the first 256 characters of Unicode."""
        return _serialization.written(
            "tokenizer_info",
            {
                **json.loads(self.dump_metadata()),
                "special_token_ids": [] if self._stands_in else self._info.special_token_ids,
                "decoded_vocab": [token.decode("latin-1") for token in self._tokens],
            },
        )

    @staticmethod
    def deserialize_json(json_string: str) -> TokenizerInfo:
        """From what `serialize_json` gave.

        Raises:
            InvalidJSONError, DeserializeVersionError, DeserializeFormatError: it is something else.
        """
        fields = _serialization.read(
            "tokenizer_info",
            json_string,
            {
                "vocab_type": int,
                "vocab_size": int,
                "add_prefix_space": bool,
                "stop_token_ids": list,
                "special_token_ids": list,
                "decoded_vocab": list,
            },
        )
        self = TokenizerInfo.__new__(TokenizerInfo)
        try:
            tokens = [token.encode("latin-1") for token in fields["decoded_vocab"]]
            self._set(
                tokens,
                VocabType(fields["vocab_type"]),
                fields["vocab_size"],
                fields["stop_token_ids"],
                fields["add_prefix_space"],
            )
            if not self._stands_in:
                self._info = _formwork.TokenizerInfo(
                    tokens,
                    vocab_size=self._vocab_size,
                    stop_token_ids=self._stop_token_ids,
                    special_token_ids=fields["special_token_ids"],
                )
        except (AttributeError, TypeError, ValueError, IndexError) as error:
            raise DeserializeFormatError(f"the vocabulary is malformed: {error}") from None
        return self
