"""Errors as they are stored: bounded, storable, and never a failure of their own."""

from __future__ import annotations

from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import PayloadInvalid
from app.worker.containment import BodyExit
from app.worker.error_info import MESSAGE_MAX_BYTES, REPLACED_MARK, TRACEBACK_MAX_BYTES, error_info, leaves


def raised(error: BaseException) -> BaseException:
    try:
        throw(error)
    except BaseException as caught:  # noqa: BLE001 - any
        return caught


def throw(error: BaseException) -> NoReturn:
    raise error


class LoudError(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


class LyingError(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value] # noqa: PLE0307 - the lie


@given(st.text(max_size=200) | st.text(alphabet="\0\ud800é", min_size=1, max_size=9000))
def test_any_message_can_be_stored(text: str) -> None:
    info = error_info(raised(ValueError(text)))
    assert len(info.message.encode()) <= MESSAGE_MAX_BYTES
    assert "\0" not in info.message
    assert info.traceback is not None
    info.traceback.encode()


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "\udfff" + "x" * 20_000, "x" * 20_000 + "\0", "é" * 5_000 + "\0"])
def test_replaced_characters_are_flagged_in_the_text_itself(text: str) -> None:
    info = error_info(raised(ValueError(text)))
    is_in_what_is_kept = not text.startswith("x")  # the start of a message is kept, the end of a traceback
    assert info.message.endswith(REPLACED_MARK) is is_in_what_is_kept
    assert len(info.message.encode()) <= MESSAGE_MAX_BYTES
    assert info.traceback is not None
    assert info.traceback.endswith(REPLACED_MARK)
    assert len(info.traceback.encode()) <= TRACEBACK_MAX_BYTES


@pytest.mark.parametrize("text", ["plain", "\ufffd already there", "x" * 20_000])
def test_a_text_that_was_not_changed_or_only_cut_is_not_flagged(text: str) -> None:
    info = error_info(raised(ValueError(text)))
    assert REPLACED_MARK not in info.message + (info.traceback or "")


def test_a_kind_with_odd_characters_is_flagged_too() -> None:
    odd = type("Odd", (Exception,), {"__qualname__": "Odd\0Error"})
    assert error_info(odd("x")).type == "Odd\ufffdError" + REPLACED_MARK


@pytest.mark.parametrize("error", [LoudError(), LyingError()])
def test_a_message_that_cannot_be_had_is_said_to_be_so(error: BaseException) -> None:
    info = error_info(raised(error))
    assert "cannot be had" in info.message
    assert info.type == type(error).__name__


def test_a_coded_error_keeps_code_cause_and_repair() -> None:
    info = error_info(raised(PayloadInvalid("the field `a` is missing", fix="send it")))
    assert (info.type, info.code) == ("PayloadInvalid", "PAYLOAD_INVALID")
    assert info.message == "the field `a` is missing (fix: send it)"


def test_a_long_traceback_keeps_its_end() -> None:
    def deep(n: int) -> None:
        if n == 0:
            raise ValueError("the end")
        (deep if n % 2 else deeper)(n - 1)

    def deeper(n: int) -> None:
        (deeper if n % 3 == 0 else deep)(max(n - 1, 0))

    with pytest.raises(ValueError, match="the end") as caught:
        deep(900)
    info = error_info(caught.value)
    assert info.traceback is not None
    assert len(info.traceback.encode()) <= TRACEBACK_MAX_BYTES
    assert info.traceback.rstrip().endswith("ValueError: the end")


def test_a_group_names_what_is_in_it() -> None:
    group = ExceptionGroup("two", [ValueError("a"), ExceptionGroup("inner", [KeyError("b")])])
    info = error_info(raised(group))
    assert "ValueError: a" in info.message
    assert "KeyError: 'b'" in info.message
    assert [type(leaf) for leaf in leaves(group)] == [ValueError, KeyError]


def test_a_deep_group_is_walked_without_recursion() -> None:
    error: Exception = ValueError("inside")
    for _ in range(5_000):
        error = ExceptionGroup("around", [error])
    assert [type(leaf) for leaf in leaves(error)] == [ValueError]
    assert error_info(error).type == "ExceptionGroup"


def test_a_childs_exit_is_described_as_what_it_was() -> None:
    stand_in = BodyExit("a task of the body raised SystemExit")
    stand_in.__cause__ = SystemExit(3)
    info = error_info(raised(stand_in))
    assert (info.type, info.message) == ("SystemExit", "3")
