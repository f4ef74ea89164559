import os

import numpy
import pytest
from conftest import EOS, EOT, VOCAB

from formwork.grammar import (
    GrammarMatcher,
    MatcherError,
    accept_token_batch,
    allocate_token_bitmask,
    apply_token_bitmask_inplace,
    fill_next_token_bitmask_batch,
)

T, F, TRUE, FALSE = ord("t"), ord("f"), 256, 258


def bits(row):
    words = numpy.asarray(row).view(numpy.uint32)
    return [t for t in range(len(words) * 32) if int(words[t // 32]) >> (t % 32) & 1]


def test_a_mask_has_the_allowed_tokens_and_no_others(matcher):
    bitmask = allocate_token_bitmask(3, 270)
    assert bitmask.shape == (3, 9) and bitmask.dtype == numpy.int32
    assert matcher.fill_next_token_bitmask(bitmask, 1) is True
    assert bits(bitmask[1]) == matcher.next_token_ids() == [F, T, TRUE, FALSE]
    assert (bitmask[[0, 2]] == -1).all()


def test_a_text_is_accepted_taken_back_and_ended(matcher):
    assert not matcher.accept_token(ord("x"))
    assert matcher.accept_token(T)
    assert matcher.next_token_ids() == [ord("r")]
    assert matcher.find_jump_forward_string() == "rue"
    assert matcher.min_tokens_to_complete() == 4
    fork = matcher.fork()
    assert matcher.accept_string("rue")
    assert matcher.is_completed() and not matcher.is_terminated()
    assert matcher.next_token_ids() == [EOS, EOT]
    assert matcher.num_accepted == 2
    matcher.rollback()
    assert matcher.next_token_ids() == fork.next_token_ids() == [ord("r")]
    assert matcher.accept_string(b"rue") and matcher.accept_token(EOT)
    assert matcher.is_terminated()
    assert fork.num_accepted == 1 and not fork.is_terminated()
    matcher.reset()
    assert matcher.num_accepted == 0
    assert matcher.validate_tokens([T, ord("r"), ord("x")]) == 2


def test_a_string_is_one_step_and_an_empty_one_too(matcher):
    assert matcher.accept_string("tr") and matcher.accept_string("")
    assert matcher.num_accepted == 2
    matcher.rollback(2)
    assert matcher.next_token_ids() == [F, T, TRUE, FALSE]


def test_stop_tokens_take_the_place_of_the_vocabularys(compiler):
    grammar = compiler.compile_regex("a?")
    assert GrammarMatcher(grammar).next_token_ids() == [97, EOS, EOT]
    own = GrammarMatcher(grammar, override_stop_tokens=[EOT])
    assert own.next_token_ids() == [97, EOT] and own.stop_token_ids == [EOT]
    assert not own.accept_token(EOS) and own.accept_token(EOT)
    with pytest.raises(ValueError, match=r"override_stop_tokens holds 999, but ids go from 0 to 269"):
        GrammarMatcher(grammar, override_stop_tokens=[999])
    with pytest.raises(ValueError, match="override_stop_tokens is empty"):
        GrammarMatcher(grammar, override_stop_tokens=[])


def test_a_text_may_end_without_a_stop_token(compiler):
    matcher = GrammarMatcher(compiler.compile_regex("ab"), terminate_without_stop_token=True)
    assert matcher.accept_token(97) and not matcher.is_terminated()
    assert matcher.accept_token(98) and matcher.is_terminated()
    assert not matcher.accept_token(EOS)


def test_masks_within_a_number_of_tokens(compiler):
    matcher = GrammarMatcher(compiler.compile_regex("a+"))
    bitmask = allocate_token_bitmask(1, 270)
    matcher.fill_next_token_bitmask_within(bitmask, 2)
    assert bits(bitmask[0]) == [97]
    assert matcher.accept_token(97)
    matcher.fill_next_token_bitmask_within(bitmask, 1)
    assert bits(bitmask[0]) == [EOS, EOT]
    with pytest.raises(MatcherError) as raised:
        matcher.reset() or matcher.fill_next_token_bitmask_within(bitmask, 1)
    assert raised.value.kind == "within" and raised.value.max == 2


def test_batches(compiler):
    grammars = [compiler.compile_regex(p) for p in ("a", "b", "(?s:.)*")]
    matchers = [GrammarMatcher(g) for g in grammars]
    bitmask = allocate_token_bitmask(5, 270)
    applies = fill_next_token_bitmask_batch(matchers, bitmask, [4, 0, 2])
    assert applies == [True, True, True]
    assert bits(bitmask[4]) == [97] and bits(bitmask[0]) == [98]
    assert bits(bitmask[2]) == matchers[2].next_token_ids()
    assert (bitmask[[1, 3]] == -1).all()
    assert accept_token_batch(matchers, [97, 97, 97]) == [True, False, True]
    before = bitmask.copy()
    for arguments, error in [
        ((matchers, bitmask, [0, 1]), ValueError),
        ((matchers, bitmask, [0, 1, 1]), ValueError),
        ((matchers, bitmask, [0, 1, 5]), IndexError),
        ((matchers, bitmask[:2]), IndexError),
        (([None], bitmask), TypeError),
    ]:
        with pytest.raises(error):
            fill_next_token_bitmask_batch(*arguments)
    assert (bitmask == before).all()
    with pytest.raises(ValueError, match="token_ids has 1 for 3 matchers"):
        accept_token_batch(matchers, [1])


@pytest.mark.parametrize(
    "wrong, error, text",
    [
        (numpy.zeros((1, 9), numpy.int64), TypeError, "bitmask must be of int32"),
        (numpy.zeros((1, 9), numpy.float32), TypeError, "bitmask must be of int32"),
        (numpy.zeros((1, 8), numpy.int32), ValueError, "needs 9"),
        (numpy.zeros((1, 1, 9), numpy.int32), ValueError, "one dimension or two"),
        (numpy.int32(3), TypeError, "numpy array or another object"),
        (numpy.zeros((9, 2), numpy.int32).T, ValueError, "contiguous"),
        (numpy.zeros((1, 18), numpy.int32)[:, ::2], ValueError, "contiguous"),
        (numpy.zeros((2, 9), numpy.int32)[::-1], ValueError, "contiguous"),
        (bytes(36), TypeError, "bitmask must be of int32"),
        (memoryview(bytes(36)).cast("i"), ValueError, "writable"),
        ([0] * 9, TypeError, "torch tensor, a numpy array"),
        (None, TypeError, "not NoneType"),
    ],
)
def test_a_wrong_bitmask_is_refused(matcher, wrong, error, text):
    with pytest.raises(error, match=text):
        matcher.fill_next_token_bitmask(wrong)


def test_rows_of_other_memory(matcher):
    expected = matcher.next_token_ids()
    wide = numpy.full((4, 20), -1, numpy.int32)
    matcher.fill_next_token_bitmask(wide[::2], 1)
    assert bits(wide[2]) == expected and (wide[[0, 1, 3]] == -1).all()
    matcher.fill_next_token_bitmask(wide[:, 2:12], 3)
    assert bits(wide[3, 2:12]) == expected and (wide[3, [0, 1]] == -1).all() and wide[3, 12] == -1
    unsigned = numpy.zeros(9, numpy.uint32)
    matcher.fill_next_token_bitmask(unsigned)
    view = memoryview(bytearray(36)).cast("i")
    matcher.fill_next_token_bitmask(view)
    assert bits(unsigned) == bits(numpy.array(view, numpy.int32)) == expected
    address = numpy.zeros(9, numpy.int32)
    matcher.unsafe_fill_next_token_bitmask(address.ctypes.data, 9)
    assert bits(address) == expected
    for wrong in [(0, 9), (address.ctypes.data + 1, 9), (address.ctypes.data, 8)]:
        with pytest.raises(ValueError, match="address must be"):
            matcher.unsafe_fill_next_token_bitmask(*wrong)


class Exported:
    """A tensor of a library that has nothing but DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


def test_rows_by_dlpack(matcher):
    array = numpy.full((3, 9), -1, numpy.int32)
    assert matcher.fill_next_token_bitmask(Exported(array), 1)
    assert bits(array[1]) == matcher.next_token_ids() and (array[[0, 2]] == -1).all()
    matcher.fill_next_token_bitmask(Exported(array[::2]), 1)
    assert bits(array[2]) == matcher.next_token_ids() and (array[0] == -1).all()
    logits = numpy.zeros((3, 270), numpy.float16)
    apply_token_bitmask_inplace(Exported(logits), array)
    assert numpy.isfinite(logits[1]).sum() == 4
    for wrong, error, text in [
        (array.astype(numpy.int64), TypeError, "bitmask must be of int32"),
        (array[:, :8], ValueError, "needs 9"),
        (array.T, ValueError, "contiguous"),
        (array[None], ValueError, "one dimension or two"),
        (array[:, ::-1], ValueError, "contiguous"),
        (array[:0], IndexError, "beyond the 0 rows"),
    ]:
        with pytest.raises(error, match=text):
            matcher.fill_next_token_bitmask(Exported(wrong))


def test_indices_and_ids_out_of_range(matcher):
    bitmask = allocate_token_bitmask(2, 270)
    with pytest.raises(IndexError, match="index 2 is beyond the 2 rows"):
        matcher.fill_next_token_bitmask(bitmask, 2)
    with pytest.raises(OverflowError):
        matcher.fill_next_token_bitmask(bitmask, -1)
    for wrong in (-1, 270, 2**40):
        with pytest.raises(IndexError, match=rf"token_id is {wrong}, but ids go from 0 to 269"):
            matcher.accept_token(wrong)
    for wrong in (-1, 1):
        with pytest.raises(ValueError, match="must be from 0 to 0"):
            matcher.rollback(wrong)
    with pytest.raises(TypeError, match="text must be str or bytes, not int"):
        matcher.accept_string(3)


@pytest.mark.parametrize("kind", [numpy.float32, numpy.float16, numpy.float64])
def test_masks_over_logits(matcher, kind):
    bitmask = allocate_token_bitmask(2, 270)
    matcher.fill_next_token_bitmask(bitmask, 1)
    logits = numpy.zeros((2, 280), kind)
    apply_token_bitmask_inplace(logits, bitmask, [1])
    assert (logits[0] == 0).all()
    assert [t for t in range(280) if logits[1, t] == 0] == matcher.next_token_ids()
    assert numpy.isneginf(logits[1]).sum() == 276
    with pytest.raises(ValueError, match="logits have 2 rows and bitmask 1"):
        apply_token_bitmask_inplace(logits, bitmask[:1])
    with pytest.raises(TypeError, match="logits must be of float32"):
        apply_token_bitmask_inplace(bitmask, bitmask)
    with pytest.raises(IndexError):
        apply_token_bitmask_inplace(logits, bitmask, [2])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_of_the_process_says_what_to_do(matcher):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            matcher.next_token_ids()
            text = "no exception"
        except RuntimeError as error:
            text = str(error)
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    text = os.read(read, 10_000).decode()
    os.close(read)
    assert text.startswith("this GrammarMatcher was made before os.fork()"), text
    assert matcher.next_token_ids() == [F, T, TRUE, FALSE]


def test_vocabulary_is_what_was_given(info):
    assert info.decoded_vocab() == VOCAB
