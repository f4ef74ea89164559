"""The plug-ins without their hosts: python/plugins_test.sh tests them inside."""

import subprocess
import sys
from importlib import metadata

import numpy
import pytest
from conftest import EOS, EOT

from formwork.grammar import GrammarMatcher, MatcherError, allocate_token_bitmask
from formwork.plugins import _host, llama_cpp, mlx_lm, sglang, vllm
from formwork.plugins._engine import Request, fill_rows

VERSION = metadata.version


@pytest.fixture
def installed(monkeypatch):
    """Makes the named package look installed in a version."""
    versions = {}

    def version(package):
        if package in versions:
            return versions[package]
        return VERSION(package)

    monkeypatch.setattr(metadata, "version", version)
    return versions


def allowed(row):
    words = row.view("uint32")
    return [t for t in range(len(words) * 32) if int(words[t // 32]) >> t % 32 & 1]


def test_hosts_find_the_plugins():
    for group, module in (("vllm.general_plugins", vllm), ("sglang.srt.plugins", sglang)):
        (found,) = [e for e in metadata.entry_points(group=group) if e.name == "formwork"]
        assert found.load() is module.register


def test_a_plugin_imports_neither_its_host_nor_torch():
    code = (
        "import sys, formwork.plugins.vllm as v, formwork.plugins.sglang, formwork.plugins.mlx_lm, "
        "formwork.plugins.llama_cpp; v.register(); "
        "assert not {'torch', 'vllm', 'sglang', 'mlx', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("version", ["0.33.0", "0.33.2", "0.33.0+cu128", "0.33.1rc1"])
def test_versions_of_the_series(installed, version):
    installed["vllm"] = version
    _host.require("vllm")


@pytest.mark.parametrize("version", ["0.34.0", "0.3.3", "0.330.0", "1.0"])
def test_other_versions(installed, version, monkeypatch):
    installed["vllm"] = version
    monkeypatch.setenv("FORMWORK_VLLM", "1")
    message = f"made for vllm 0.33, not {version}: pip install 'vllm==0.33.*', or do without the plug-in"
    with pytest.raises(ImportError) as caught:
        vllm.register()
    assert message in str(caught.value)
    monkeypatch.setenv("FORMWORK_VLLM", "0")
    vllm.register()


def test_no_version_and_wrong_values(monkeypatch, compiler):
    monkeypatch.setenv("FORMWORK_VLLM", "on")
    with pytest.raises(ValueError, match=r"FORMWORK_VLLM is 'on', but it must be 1 \(on\) or 0 \(off\)"):
        vllm.register()
    with pytest.raises(ImportError, match="needs sglang 0.5.23: pip install"):
        sglang.register()
    with pytest.raises(ImportError, match="needs mlx-lm 0.32"):
        mlx_lm.LogitsProcessor(compiler.compile_regex("a"))


def test_llama_cpp(installed, compiler):
    with pytest.raises(ImportError, match="needs llama-cpp-python 0.3"):
        llama_cpp.LogitsProcessor(compiler.compile_regex("a"))
    installed["llama-cpp-python"] = "0.3.36"
    grammar = compiler.compile_choice(["true", "no"])
    with pytest.raises(TypeError, match="grammar must be a CompiledGrammar"):
        llama_cpp.LogitsProcessor("a")
    processor = llama_cpp.LogitsProcessor(grammar)
    # llama.cpp's records: a field of them has a stride of 12 bytes.
    records = numpy.zeros(270, numpy.dtype([("id", "i4"), ("logit", "f4"), ("p", "f4")], align=True))
    ids = [5, 6]
    for _ in range(9):
        scores = records.view(numpy.recarray).logit
        scores[:] = numpy.arange(270)
        scores[:] = processor(numpy.array(ids, numpy.intc), scores)
        ids.append(int(records["logit"].argmax()))
        if ids[-1] in (EOS, EOT):
            break
    matcher = GrammarMatcher(grammar)
    assert all(matcher.accept_token(token) for token in ids[2:]) and matcher.is_terminated()
    # Python prints an exception that C called for and goes on, so the scores end the text.
    with pytest.raises(ValueError, match="one call of generate"):
        processor(numpy.array([1], numpy.intc), scores)
    assert isinstance(processor.error, ValueError)
    assert numpy.isfinite(records["logit"]).nonzero()[0].tolist() == [EOS, EOT]
    processor.reset()
    assert processor.error is None and processor.matcher is None
    processor(numpy.array([1], numpy.intc), numpy.zeros(270, numpy.float32))
    assert processor.matcher.num_accepted == 0


def test_a_batch_of_requests_and_a_limit(compiler):
    words = -(-270 // 32)
    requests = [Request(compiler.compile_regex(pattern)) for pattern in ("[ab]c", "[de]", "f")]
    bitmask = allocate_token_bitmask(4, 270)
    fill_rows(requests, bitmask, [3, 0, 1])
    assert [allowed(bitmask[row]) for row in (3, 0, 1)] == [[97, 98], [100, 101], [102]]
    assert (bitmask[2] == -1).all()
    # A limit of one leaves the others as they are.
    requests[1].failure = MatcherError("a limit")
    bitmask.fill(-1)
    fill_rows(requests, bitmask, [3, 0, 1])
    assert [allowed(bitmask[row]) for row in (3, 0, 1)] == [[97, 98], [EOS, EOT], [102]]
    assert not requests[1].accept_token(100) and not requests[1].accept_token(EOS)
    requests[1].reset()
    assert requests[1].accept_token(100)
    assert not requests[0].accept_token(5000) and not requests[0].accept_token(120)
    assert requests[0].accept_token(97)
    requests[0].rollback(1)
    assert requests[0].accept_token(98)
    assert bitmask.shape[1] == words


def test_a_stop_token_in_the_sign_bit(compiler):
    request = Request(compiler.compile_regex("a"), [31, 63, 33])
    request.failure = MatcherError("a limit")
    bitmask = allocate_token_bitmask(1, 270)
    request.fill(bitmask, 0)
    assert allowed(bitmask[0]) == [31, 33, 63]


def test_one_vocabulary_for_all_rows(compiler):
    from formwork.grammar import GrammarCompiler, TokenizerInfo
    from formwork.grammar._rows import Rows

    narrow = GrammarCompiler(TokenizerInfo([b"a", b"<eos>"], stop_token_ids=[1]))
    with pytest.raises(ValueError, match=r"all of one vocabulary, not of \[2, 270\] tokens"):
        Rows([compiler.compile_regex("a"), narrow.compile_regex("a")])
    with pytest.raises(ValueError, match="at least one"):
        Rows([])
