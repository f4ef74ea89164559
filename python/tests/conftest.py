"""A vocabulary of the 256 bytes, a few words and two stop tokens."""

import pytest

from formwork.grammar import GrammarCompiler, GrammarMatcher, TokenizerInfo

WORDS = [b"true", b'{"', b"false", b"name", b"<eos>", b"<eot>"]
EOS, EOT = 260, 261
VOCAB = [bytes([byte]) for byte in range(256)] + WORDS


@pytest.fixture(scope="session")
def info():
    return TokenizerInfo(
        VOCAB, vocab_size=270, stop_token_ids=[EOS, EOT], special_token_ids=[EOS, EOT]
    )


@pytest.fixture(scope="session")
def compiler(info):
    return GrammarCompiler(info)


@pytest.fixture
def matcher(compiler):
    """At the start of `true|false`."""
    return GrammarMatcher(compiler.compile_regex("true|false"))
