"""What the captured rules of a grammar in Lark are in a text: `name[capture]: ...` and `name[capture="x"]: ...`.

The engine knows which texts a grammar has, not how one was read, so it refuses `capture` by name. `without_reports` gives
the grammar to compile, and `LarkCaptures` reads a text that is there: it compiles the grammar a second time, over bytes,
with a token before and after each rule that is captured, and puts such tokens into the text wherever they fit. A rule is
taken to begin as early as it can and to be as long as it can.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from . import GrammarCompiler, GrammarMatcher, TokenizerInfo

__all__ = ["Capture", "LarkCaptures", "without_reports"]

_STRING = r'"(?:\\.|[^"\\\n])*"'
_REGEX = r"/(?:\\.|[^/\\\n])+/[a-z]*"
# A rule's or terminal's name with its attributes, at the beginning of a line.
_HEAD = re.compile(
    rf"^(?P<name>[ \t]*[!?]*[A-Za-z_][A-Za-z0-9_-]*(?:\.[+-]?\d+)?)\[(?P<attributes>(?:{_STRING}|{_REGEX}|[^\]\"/\n])*)\](?=\s*:(?!:))",
    re.MULTILINE,
)
_ATTRIBUTE = re.compile(rf"\s*(?P<attribute>[A-Za-z_]+(?:\s*=\s*(?:{_STRING}\w*|{_REGEX}|[^,\]\s]+))?)\s*(?:,|$)")
_REPORTED = re.compile(rf"(?:stop_)?capture(?:\s*=\s*{_STRING})?|temperature\s*=\s*[\d.]+")

_NAMED = re.compile(r'"(?:\\.|[^"\\\n])*"|/(?![/*])(?:\\.|[^/\\\n])+/|(?P<token><[^\s<>\[\]]+>)|(?P<ids><\[)')
_CAPTURE = re.compile(r'capture(?:\s*=\s*"(?P<name>[^"\\]*)")?')
# Ways that are tried for one text.
_MAX_STEPS = 50_000

# A sign that was accepted: its token in the second grammar, and what it writes.
_Sign = tuple[int, bytes]


def without_reports(source: str) -> str:
    """A grammar in Lark without `capture`, `stop_capture` and `temperature`, which change no text.

    What is malformed stays, for the compiler to say so.
    """

    def head(match: re.Match[str]) -> str:
        attributes = list(_ATTRIBUTE.finditer(match["attributes"]))
        if "".join(each[0] for each in attributes) != match["attributes"]:
            return match[0]
        kept = [each["attribute"] for each in attributes if not _REPORTED.fullmatch(each["attribute"])]
        if len(kept) == len(attributes):
            return match[0]
        return match["name"] + (f"[{', '.join(kept)}]" if kept else "")

    return _HEAD.sub(head, source)


class Capture(NamedTuple):
    """What a captured rule is in a text."""

    name: str
    """The rule's name, or that in its attribute."""
    text: bytes
    start: int
    """Where it begins: bytes of the text before it."""

    @property
    def end(self) -> int:
        """Where it ends: bytes of the text up to its end."""
        return self.start + len(self.text)


def mentions_capture(source: str) -> bool:
    """True if a rule of a grammar in Lark is captured; as plain text it may be where it isn't one."""
    return any("capture" in match["attributes"] for match in _HEAD.finditer(source))


class LarkCaptures:
    """Reads what the captured rules of a grammar in Lark are in a text.

    Args:
        source: the grammar.
        tokenizer_info: the vocabulary; or the bytes of its tokens, and ids of those that are no text.

    Raises:
        NotImplementedError: a rule with `stop`, `suffix` or `stop_capture` is captured, or tokens are named by id.
        CompileError: the marks leave a grammar that can't be enforced.
    """

    def __init__(
        self, source: str, tokenizer_info: TokenizerInfo | tuple[Sequence[bytes], Sequence[int]]
    ) -> None:
        if isinstance(tokenizer_info, TokenizerInfo):
            tokenizer_info = tokenizer_info.decoded_vocab(), tokenizer_info.special_token_ids
        tokens, special = tokenizer_info
        pieces = list(_NAMED.finditer(source))
        if any(piece["ids"] for piece in pieces):
            raise NotImplementedError("captures beside tokens that are named by id aren't supported")
        names = {piece["token"].encode() for piece in pieces if piece["token"]}
        self._tokens, self._special = tokens, set(special)
        vocab = [bytes([byte]) for byte in range(256)]
        marks = []
        self._named: dict[bytes, int] = {}
        for id_, token in enumerate(tokens):
            if token in names and token not in self._named:
                self._named[token] = len(vocab)
                if id_ in self._special:
                    marks.append(len(vocab))
                vocab.append(token)
        self._names: list[str] = []
        self._first = len(vocab)
        marked = _HEAD.sub(self._marked, source)
        for at in range(2 * len(self._names)):
            marks.append(len(vocab))
            vocab.append(b"<|formwork mark %d|>" % at)
        vocab.append(b"")
        info = TokenizerInfo(vocab, stop_token_ids=[len(vocab) - 1], special_token_ids=marks)
        compiler = GrammarCompiler(info, cache_bytes=16 << 20)
        self._grammar = compiler.compile_lark(without_reports(marked))

    def _marked(self, match: re.Match[str]) -> str:
        """A rule as one with marks, around one that is read as it was."""
        attributes = [each["attribute"] for each in _ATTRIBUTE.finditer(match["attributes"])]
        captures = [(each, _CAPTURE.fullmatch(each)) for each in attributes]
        found = [(each, capture) for each, capture in captures if capture is not None]
        if not found:
            return match[0]
        if any(re.match(r"stop|suffix", each) for each in attributes):
            raise NotImplementedError("captures of rules with stop or suffix aren't supported")
        name = re.sub(r"\.[+-]?\d+$", "", match["name"].strip(" \t!?"))
        self._names.append(found[0][1]["name"] or name)
        begin = self._first + 2 * (len(self._names) - 1)
        rest = [each for each in attributes if not _CAPTURE.fullmatch(each)]
        inner = f"{name}_captured" + (f"[{', '.join(rest)}]" if rest else "")
        return f"{name}: <[{begin}]> {name}_captured <[{begin + 1}]>\n{inner}"

    def _signs(self, steps: Sequence[int | bytes]) -> Iterator[_Sign]:
        """What was accepted, sign by sign."""
        for step in steps:
            text = self._tokens[step] if isinstance(step, int) else step
            if isinstance(step, int) and step in self._special:
                if text in self._named:
                    yield self._named[text], text
                continue
            for byte in text:
                yield byte, bytes([byte])

    def read(self, steps: Sequence[int | bytes], *, is_complete: bool = True) -> list[Capture]:
        """The captures of a text, in the order in which they end.

        Args:
            steps: the tokens and texts that were accepted.
            is_complete: True if the text may end there; else rules that haven't ended are left out.

        Raises:
            NotImplementedError: no way to read the text was found in as many steps as are tried.
        """
        signs = list(self._signs(steps))
        marks = range(self._first, self._first + 2 * len(self._names))
        waiting: list[tuple[int, GrammarMatcher, tuple[tuple[int, int], ...]]] = [
            (0, GrammarMatcher(self._grammar), ())
        ]
        for _ in range(_MAX_STEPS):
            if not waiting:
                break
            at, matcher, events = waiting.pop()
            ends, begins = [], []
            for mark in marks:
                is_end = (mark - self._first) % 2 == 1
                # One rule begins once at a place.
                if not is_end and (at, mark) in events:
                    continue
                after = matcher.fork()
                if after.accept_token(mark):
                    (ends if is_end else begins).append((at, after, (*events, (at, mark))))
            if at == len(signs):
                if matcher.is_completed() or not (ends or begins or is_complete):
                    return self._written(signs, events)
                waiting += begins + ends
                continue
            waiting += ends
            if matcher.accept_token(signs[at][0]):
                waiting.append((at + 1, matcher, events))
            waiting += begins
        raise NotImplementedError("how this text was read isn't known: its grammar can be read in too many ways")

    def _written(self, signs: list[_Sign], events: tuple[tuple[int, int], ...]) -> list[Capture]:
        begun: list[int] = []
        found = []
        for at, mark in events:
            number, is_end = divmod(mark - self._first, 2)
            if not is_end:
                begun.append(at)
                continue
            first = begun.pop()
            text = b"".join(sign[1] for sign in signs[first:at])
            start = sum(len(sign[1]) for sign in signs[:first])
            found.append(Capture(self._names[number], text, start))
        return found
