"""A plugin of pytest: XGrammar's own tests by alias, with comparisons of text neutralised.

What its printers write of grammars equals any text, and holds any. So do our messages, but a test in which one of
them isn't what XGrammar says is noted as `worded`, not as passed. FORMWORK_OUTCOMES names a file for the outcomes,
one test a line. SUITE_OF=xgrammar takes the installed XGrammar instead, for comparison.
"""

import contextlib
import os
import re
import sys

import pytest

OF_XGRAMMAR = os.environ.get("SUITE_OF", "formwork") == "xgrammar"
if not OF_XGRAMMAR:
    import formwork.compat.xgrammar
    from formwork.compat.xgrammar.exception import GrammarError

    formwork.compat.xgrammar.install()

import xgrammar
import xgrammar.testing

compared = 0
worded = set()
outcomes = {}
running = ""


class AnyText(str):
    """A text that equals any text, and holds any."""

    __slots__ = ()

    def _neutral(self, _):
        global compared
        compared += 1
        return True

    __eq__ = __contains__ = startswith = endswith = _neutral
    __hash__ = str.__hash__

    def __ne__(self, _):
        return not self._neutral(_)


class Message(str):
    """A message that holds any text, and notes which test asked for what it doesn't hold."""

    __slots__ = ()

    def __contains__(self, part):
        if part not in str.__str__(self):
            worded.add(running)
        return True


_printed = xgrammar.Grammar.__str__
xgrammar.Grammar.__str__ = lambda self: AnyText(_printed(self))
if not OF_XGRAMMAR:
    _message = GrammarError.__str__
    GrammarError.__str__ = lambda self: Message(_message(self))

for _name in (
    "_json_schema_to_ebnf",
    "_regex_to_ebnf",
    "_generate_range_regex",
    "_generate_float_regex",
    "_print_grammar_fsms",
):
    setattr(xgrammar.testing, _name, lambda *_, **__: AnyText())

# Parts of XGrammar's implementation that Formwork has nothing like: whoever asks for them fails alone.
for _name in (
    "GrammarFunctor",
    "_ebnf_to_grammar_no_normalization",
    "_get_allow_empty_rule_ids",
    "_is_rule_fsm_accept_string",
):
    if not hasattr(xgrammar.testing, _name):
        setattr(xgrammar.testing, _name, None)


_raises = pytest.raises


@contextlib.contextmanager
def raises(expected, match):
    with _raises(expected) as info:
        yield info
    if not re.search(match, str.__str__(str(info.value))):
        worded.add(running)


if not OF_XGRAMMAR:
    pytest.raises = lambda expected, match=None: raises(expected, match) if match else _raises(expected)


def pytest_runtest_logstart(nodeid):
    global running
    running = nodeid


def pytest_runtest_logreport(report):
    if report.failed:
        outcomes[report.nodeid] = "failed"
    elif report.when == "call" or report.skipped:
        outcomes.setdefault(report.nodeid, report.outcome)


def pytest_sessionfinish():
    if path := os.environ.get("FORMWORK_OUTCOMES"):
        with open(path, "w") as file:
            for nodeid, outcome in sorted(outcomes.items()):
                other_words = outcome == "passed" and nodeid in worded
                file.write(f"{'worded' if other_words else outcome} {ascii(nodeid)[1:-1]}\n")


def pytest_terminal_summary(terminalreporter):
    package = sys.modules["xgrammar"].__name__
    terminalreporter.write_line(f"{package}: {compared} comparisons of printed grammars neutralised")
