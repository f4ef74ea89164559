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
_NAME = r'\s*=\s*"[A-Za-z_][A-Za-z0-9_-]*"'
_REPORTED = re.compile(rf"capture(?:{_NAME})?|stop_capture{_NAME}|temperature\s*=\s*[\d.]+")

_NAMED = re.compile(r'"(?:\\.|[^"\\\n])*"|/(?![/*])(?:\\.|[^/\\\n])+/|(?P<token><[^\s<>\[\]]+>)|(?P<ids><\[)')
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
        names = [re.split(r"\s*=", each["attribute"])[0] for each in attributes]
        is_terminal = match["name"].lstrip(" \t!?_")[:1].isupper()
        ends = {"stop", "suffix"} & set(names)
        if len(set(names)) < len(names) or is_terminal or ("stop_capture" in names and not ends):
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
    end: int
    """Where it ends: bytes of the text up to its end. What a rule within it ended with by `stop` is no part of `text`."""


class _Rule(NamedTuple):
    """A rule between marks: one before it, one after it, and one before what ends its text."""

    name: str | None
    """Its capture's, if it is captured."""
    end_name: str | None
    """That of what ends its text, if that is captured."""
    ends_early: bool
    """True with `stop` and `suffix`: its text ends as early as it can, and so does what ends it."""
    is_hidden: bool
    """True with `stop`: what ends its text is no part of captures around it."""


_BEGIN, _SPLIT, _END = range(3)


def mentions_capture(source: str) -> bool:
    """True if a rule of a grammar in Lark is captured; as plain text it may be where it isn't one."""
    return any("capture" in match["attributes"] for match in _HEAD.finditer(source))


class LarkCaptures:
    """Reads what the captured rules of a grammar in Lark are in a text.

    Args:
        source: the grammar.
        tokenizer_info: the vocabulary; or the bytes of its tokens, and ids of those that are no text.

    Raises:
        NotImplementedError: a terminal is captured, or tokens are named by id.
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
        self._rules: list[_Rule] = []
        self._first = len(vocab)
        marked = _HEAD.sub(self._marked, source)
        for at in range(3 * len(self._rules)):
            marks.append(len(vocab))
            vocab.append(b"<|formwork mark %d|>" % at)
        vocab.append(b"")
        info = TokenizerInfo(vocab, stop_token_ids=[len(vocab) - 1], special_token_ids=marks)
        compiler = GrammarCompiler(info, cache_bytes=16 << 20)
        self._grammar = compiler.compile_lark(without_reports(marked))

    def _marked(self, match: re.Match[str]) -> str:
        """A rule as one with marks, around one that is read as it was."""
        attributes = [each["attribute"] for each in _ATTRIBUTE.finditer(match["attributes"])]
        given = dict(re.split(r"\s*=\s*", each, maxsplit=1) if "=" in each else (each, "") for each in attributes)
        name = re.sub(r"\.[+-]?\d+$", "", match["name"].strip(" \t!?"))
        ends = given.get("stop", given.get("suffix"))
        # How many tokens a text has isn't known of its bytes.
        rest = [each for each in attributes if not re.match(r"(stop_)?capture|temperature|max_tokens|stop|suffix", each)]
        if "capture" not in given and "stop_capture" not in given and "stop" not in given:
            kept = [*rest, *(each for each in attributes if each.startswith("suffix"))]
            return match["name"] + (f"[{', '.join(kept)}]" if kept else "")
        if name.lstrip("_")[:1].isupper():
            if "stop" in given and not {"capture", "stop_capture"} & given.keys():
                return match[0]
            raise NotImplementedError(f"captures of terminals, such as {name}, aren't supported")
        if "stop_capture" in given and ends is None:
            raise NotImplementedError(f"stop_capture of {name} needs stop or suffix")
        own = given["capture"].strip('"') or name if "capture" in given else None
        of_end = given["stop_capture"].strip('"') if "stop_capture" in given else None
        self._rules.append(_Rule(own, of_end, ends is not None, "stop" in given))
        begin, split, end = (self._first + 3 * (len(self._rules) - 1) + place for place in range(3))
        if ends is None:
            inner = f"{name}_captured" + (f"[{', '.join(rest)}]" if rest else "")
            return f"{name}: <[{begin}]> {name}_captured <[{end}]>\n{inner}"
        # Where a text ends so is found out here, among all places.
        rest = [each for each in rest if each != "lazy"]
        inner = f"{name}_captured" + (f"[{', '.join(rest)}]" if rest else "")
        return f"{name}: <[{begin}]> {name}_captured <[{split}]> {name}_end <[{end}]>\n{name}_end: {ends}\n{inner}"

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
        marks = range(self._first, self._first + 3 * len(self._rules))
        waiting: list[tuple[int, GrammarMatcher, tuple[tuple[int, int], ...]]] = [
            (0, GrammarMatcher(self._grammar), ())
        ]
        for _ in range(_MAX_STEPS):
            if not waiting:
                break
            at, matcher, events = waiting.pop()
            late, early = [], []
            for mark in marks:
                number, place = divmod(mark - self._first, 3)
                # One rule begins once at a place.
                if place == _BEGIN and (at, mark) in events:
                    continue
                after = matcher.fork()
                if after.accept_token(mark):
                    is_early = place == _BEGIN or self._rules[number].ends_early
                    (early if is_early else late).append((at, after, (*events, (at, mark))))
            if at == len(signs):
                if matcher.is_completed() or not (late or early or is_complete):
                    return self._written(signs, events)
                waiting += early + late
                continue
            waiting += late
            if matcher.accept_token(signs[at][0]):
                waiting.append((at + 1, matcher, events))
            waiting += early
        raise NotImplementedError("how this text was read isn't known: its grammar can be read in too many ways")

    def _written(self, signs: list[_Sign], events: tuple[tuple[int, int], ...]) -> list[Capture]:
        begun: list[int] = []
        hidden: set[int] = set()
        found: list[Capture] = []

        def capture(name: str | None, first: int, end: int) -> None:
            if name is not None:
                text = b"".join(signs[at][1] for at in range(first, end) if at not in hidden)
                start, stop = (sum(len(sign[1]) for sign in signs[:place]) for place in (first, end))
                found.append(Capture(name, text, start, stop))

        for at, mark in events:
            number, place = divmod(mark - self._first, 3)
            rule = self._rules[number]
            if place != _END:
                begun.append(at)
                continue
            end = begun.pop() if rule.ends_early else at
            first = begun.pop()
            capture(rule.end_name, end, at)
            capture(rule.name, first, end)
            if rule.is_hidden:
                hidden.update(range(end, at))
        return found
