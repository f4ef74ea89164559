"""Grammars that aren't compiled yet."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from typing import Any

from formwork import grammar as _formwork
from formwork.grammar.captures import without_reports

from . import _serialization
from ._lark_names import with_any_space, written_out
from ._schema import closed_text, schema_text
from ._tags import engine_tag
from .exception import DeserializeFormatError, GrammarError, InvalidJSONError, translated
from .structural_tag import StructuralTag, StructuralTagItem

__all__ = ["Grammar", "StructuralTagItem"]

_KINDS = ("ebnf", "lark", "regex", "json_schema", "structural_tag", "concat", "union")
_MIXED = "a part of Grammar.concat or Grammar.union has {what}, which Formwork knows of whole texts only: leave it out"


class Grammar:
    """A grammar that isn't compiled yet: what `GrammarCompiler.compile_grammar` takes.

    Made by the static methods. It keeps its source; the text of `str` is that, and not XGrammar's EBNF.
    """

    def __init__(self, kind: str, source: Any, options: dict[str, Any] | None = None) -> None:
        self._kind, self._source, self._options = kind, source, options or {}

    def __str__(self) -> str:
        if self._kind in ("concat", "union"):
            return f" {'|' if self._kind == 'union' else ''} ".join(f"({each})" for each in self._source)
        return str(self._source[0])

    @staticmethod
    def from_ebnf(ebnf_string: str, *, root_rule_name: str = "root") -> Grammar:
        """From EBNF, from the rule named `root_rule_name` on.

        Raises:
            GrammarError: with line and column.
        """
        return Grammar("ebnf", [ebnf_string, root_rule_name])._checked()

    @staticmethod
    def from_lark(
        lark_string: str,
        *,
        tokenizer_info: Any = None,
        named_grammars: dict[str, Grammar | str] | None = None,
    ) -> Grammar:
        """From Lark.

        Args:
            lark_string: the grammar, whose first rule is `start`.
            tokenizer_info: which tokens there are, where the grammar names some.
            named_grammars: what `@name` stands for: a grammar in Lark, or a Grammar made from Lark, a regular
                expression or a JSON Schema.

        Raises:
            GrammarError: with line and column; a name that is unknown or leads back to itself.
            TypeError: named_grammars isn't such a dict.
            NotImplementedError: a named Grammar of another kind.
        """
        grammar = Grammar._of_lark(lark_string, named_grammars)
        if tokenizer_info is None:
            return grammar._checked()
        grammar.compiled_by(_formwork.GrammarCompiler(tokenizer_info._info))
        return grammar

    @staticmethod
    def _of_lark(lark_string: str, named_grammars: Any) -> Grammar:
        if named_grammars is None:
            return Grammar("lark", [lark_string])
        _check_named(named_grammars)
        named = {
            name: functools.partial(_lark_source, name, grammar) for name, grammar in named_grammars.items()
        }
        return Grammar("lark", [written_out(lark_string, named)])

    @staticmethod
    def from_regex(regex_string: str, *, print_converted_ebnf: bool = False) -> Grammar:
        """From a regular expression, which is to match the whole text.

        Raises:
            GrammarError: with line and column.
        """
        return Grammar("regex", [regex_string])._checked()

    @staticmethod
    def from_json_schema(schema: Any, *, print_converted_ebnf: bool = False, **options: Any) -> Grammar:
        """From a JSON Schema; options as `GrammarCompiler.compile_json_schema`.

        Raises:
            GrammarError: with the pointer of what is malformed or can't be enforced.
            InvalidJSONError: it is no JSON.
        """
        return Grammar._of_schema(schema, **options)._checked()

    @staticmethod
    def _of_schema(
        schema: Any,
        *,
        any_whitespace: bool = True,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        strict_mode: bool = True,
        max_whitespace_cnt: int | None = None,
        any_order: bool = False,
    ) -> Grammar:
        text = closed_text(schema) if strict_mode else schema_text(schema)
        options: dict[str, Any] = {}
        if any_order:
            options["property_order"] = "any"
        if not any_whitespace:
            if indent is None:
                options["whitespace"] = "compact"
            else:
                options["indent"] = indent
            options["separators"] = list(separators or (", " if indent is None else ",", ": "))
        else:
            if max_whitespace_cnt is not None and max_whitespace_cnt < 0:
                raise ValueError(f"max_whitespace_cnt is {max_whitespace_cnt}, but must be at least 0")
            count = "*" if max_whitespace_cnt is None else f"{{0,{int(max_whitespace_cnt)}}}"
            options["whitespace_pattern"] = "[ \\n\\r\\t]" + count
            options["trimmed"] = True
        return Grammar("json_schema", [text], options)

    @staticmethod
    def from_structural_tag(*args: Any, **kwargs: Any) -> Grammar:
        """From a structural tag, or (the older way) a list of `StructuralTagItem` and their triggers.

        Ids of tokens are checked when the grammar is compiled; names need `GrammarCompiler`.

        Raises:
            InvalidJSONError, InvalidStructuralTagError: it is malformed.
            TypeError: neither of these arguments.
        """
        return Grammar._of_tag(*args, **kwargs)._checked()

    @staticmethod
    def _of_tag(*args: Any, **kwargs: Any) -> Grammar:
        tag = _tag_argument(args, kwargs)
        if isinstance(tag, str):
            try:
                tag = json.loads(tag)
            except ValueError as error:
                raise InvalidJSONError(
                    f"Invalid JSON error: the structural tag is no JSON: {error}"
                ) from None
        return Grammar("structural_tag", [json.dumps(engine_tag(tag), ensure_ascii=False)])

    @staticmethod
    def builtin_json_grammar() -> Grammar:
        """Any JSON object or array, with white space anywhere."""
        return Grammar._of_schema({"type": ["object", "array"]})

    @staticmethod
    def concat(*grammars: Grammar) -> Grammar:
        """The texts of the grammars, one after the other.

        Raises:
            ValueError: no grammar.
            TypeError: something else than a Grammar.
        """
        return _mixed("concat", grammars)

    @staticmethod
    def union(*grammars: Grammar) -> Grammar:
        """The texts of any of the grammars.

        Raises:
            ValueError: no grammar.
            TypeError: something else than a Grammar.
        """
        return _mixed("union", grammars)

    def serialize_json(self) -> str:
        """JSON of the grammar's source."""
        return _serialization.written("grammar", {"grammar": self._fields()})

    @staticmethod
    def deserialize_json(json_string: str) -> Grammar:
        """From what `serialize_json` gave.

        Raises:
            InvalidJSONError, DeserializeVersionError, DeserializeFormatError: it is something else.
        """
        return Grammar._from_fields(_serialization.read("grammar", json_string, {"grammar": dict})["grammar"])

    def _fields(self) -> dict[str, Any]:
        nested = self._kind in ("concat", "union")
        source = [each._fields() for each in self._source] if nested else self._source
        return {"kind": self._kind, "source": source, "options": self._options}

    @staticmethod
    def _from_fields(fields: Any) -> Grammar:
        if not (
            isinstance(fields, dict)
            and fields.get("kind") in _KINDS
            and isinstance(fields.get("source"), list)
            and isinstance(fields.get("options"), dict)
            and fields["source"]
        ):
            raise DeserializeFormatError("the grammar lacks its kind, source or options")
        kind, source = fields["kind"], fields["source"]
        if kind in ("concat", "union"):
            return Grammar(kind, [Grammar._from_fields(each) for each in source])
        if len(source) != (2 if kind == "ebnf" else 1) or not all(isinstance(text, str) for text in source):
            raise DeserializeFormatError("the grammar's source isn't text")
        return Grammar(kind, source, fields["options"])

    def _format(self) -> dict[str, Any]:
        """This grammar as a part of a structural tag."""
        kind, source = self._kind, self._source
        if kind == "concat":
            return {"type": "sequence", "elements": [each._format() for each in source]}
        if kind == "union":
            return {"type": "or", "elements": [each._format() for each in source]}
        if kind == "regex":
            return {"type": "regex", "pattern": source[0]}
        if kind == "structural_tag":
            return dict(json.loads(source[0])["format"])
        if kind == "json_schema":
            options = dict(self._options)
            options.pop("trimmed", None)
            count = re.fullmatch(r".*(?:\*|\{0,(\d+)\})", options.pop("whitespace_pattern", ""))
            any_order = options.pop("property_order", None) == "any"
            if options:
                raise NotImplementedError(_MIXED.format(what="any_whitespace=False"))
            form = {"type": "json_schema", "json_schema": json.loads(source[0]), "any_order": any_order}
            return form if count is None else {**form, "max_whitespace_cnt": int(count[1] or -1)}
        text = source[0]
        if kind == "ebnf" and source[1] != "root":
            if re.search(r"(?m)^\s*root\s*::=", text):
                raise NotImplementedError(_MIXED.format(what=f"the root {source[1]} beside a rule root"))
            text += f"\nroot ::= {source[1]}\n"
        return {"type": "grammar", "grammar": with_any_space(without_reports(text)) if kind == "lark" else text}

    def _mentions(self, word: str) -> bool:
        """True if a grammar in Lark or EBNF has the word somewhere."""
        if self._kind in ("concat", "union"):
            return any(each._mentions(word) for each in self._source)
        return self._kind in ("lark", "ebnf", "structural_tag") and word in self._source[0]

    def compiled_by(self, compiler: _formwork.GrammarCompiler) -> _formwork.CompiledGrammar:
        """Compiles it by the engine's own compiler.

        Raises:
            GrammarError: with the place of what is malformed or can't be enforced.
        """
        kind, source = self._kind, self._source
        if kind in ("concat", "union"):
            kind, source = (
                "structural_tag",
                [json.dumps({"type": "structural_tag", "format": self._format()})],
            )
        method: Callable[..., _formwork.CompiledGrammar] = getattr(compiler, f"compile_{kind}")
        try:
            if kind == "lark":
                source = [without_reports(source[0])]
                try:
                    return method(with_any_space(source[0]))
                except _formwork.CompileError:
                    # The place of an error is that in the source as it was given.
                    method(*source)
                    raise
            return method(*source, **self._options)
        except _formwork.CompileError as error:
            raise translated(error, structural_tag=self._kind == "structural_tag") from None

    def _checked(self) -> Grammar:
        """This grammar, once it was compiled for a vocabulary of bytes: errors come where it is made.

        Ids of tokens are for another vocabulary, and checked when it is compiled for that.
        """
        try:
            self.compiled_by(_bytes_compiler())
        except GrammarError as error:
            if not _OTHER_VOCABULARY.search(str(error)):
                raise
        return self


_OTHER_VOCABULARY = re.compile(r"token \d+ (is beyond the vocabulary|ends the text)")


@functools.cache
def _bytes_compiler() -> _formwork.GrammarCompiler:
    vocab = [bytes([byte]) for byte in range(256)] + [b"</s>"]
    info = _formwork.TokenizerInfo(vocab, stop_token_ids=[256], special_token_ids=[256])
    return _formwork.GrammarCompiler(info, cache_bytes=16 << 20)


def _check_named(named_grammars: Any) -> None:
    if not isinstance(named_grammars, dict):
        raise TypeError("named_grammars must be a dictionary")
    for name, grammar in named_grammars.items():
        if not isinstance(name, str):
            raise TypeError("named grammar names must be strings")
        if not isinstance(grammar, (Grammar, str)):
            raise TypeError("named grammar values must be Grammar instances or Lark strings")


def _lark_source(name: str, grammar: Grammar | str) -> str:
    """A named grammar in Lark."""
    if isinstance(grammar, str):
        return grammar
    source = grammar._source[0]
    if grammar._kind == "lark":
        return str(source)
    if grammar._kind == "regex":
        return "start: /" + re.sub(r"\\.|/", lambda m: "\\/" if m[0] == "/" else m[0], source) + "/"
    if grammar._kind == "json_schema" and grammar._options.keys() <= {"whitespace_pattern", "trimmed"}:
        return f"start: %json {source}"
    raise NotImplementedError(
        f"the named grammar {name!r} must be made from Lark, a regular expression or a JSON Schema"
    )


def _mixed(kind: str, grammars: tuple[Any, ...]) -> Grammar:
    if not grammars:
        raise ValueError(f"Grammar.{kind} needs a grammar")
    for each in grammars:
        if not isinstance(each, Grammar):
            raise TypeError(f"Grammar.{kind} takes Grammars, not {type(each).__name__}")
    return Grammar(kind, list(grammars))


def _tag_argument(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The tag among a call's arguments, as a str or a dict."""
    named = [*args, *(kwargs[name] for name in ("structural_tag", "tags", "triggers") if name in kwargs)]
    if len(named) != len(args) + len(kwargs) or len(named) not in (1, 2):
        raise TypeError("expected a structural tag, or tags and triggers")
    if len(named) == 2:
        tags, triggers = named
        if not isinstance(tags, list) or not isinstance(triggers, list):
            raise TypeError("tags and triggers must be lists")
        return StructuralTag.from_legacy_structural_tag(tags, triggers).model_dump()
    (tag,) = named
    if isinstance(tag, StructuralTag):
        return tag.model_dump()
    if isinstance(tag, (str, dict)):
        return tag
    raise TypeError(
        f"a structural tag must be a StructuralTag, JSON as a str, or a dict, not {type(tag).__name__}"
    )
