"""What can be stored of a text, and which texts may be keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.text import CUT_MARK, Keep, is_printable, printable_key, storable


def test_text_that_can_be_stored_comes_back_untouched() -> None:
    assert storable("plain é 😀\n\t", 100) == ("plain é 😀\n\t", False)


@pytest.mark.parametrize("bad", ["\0", chr(0xD800), chr(0xDFFF)])
def test_what_the_database_refuses_is_replaced_and_flagged(bad: str) -> None:
    assert storable(f"a{bad}b", 100) == ("a\ufffdb", True)


def test_a_long_text_keeps_its_start_and_is_marked() -> None:
    kept, changed = storable("x" * 1000, 100)
    assert changed
    assert kept == "x" * (100 - len(CUT_MARK.encode())) + CUT_MARK


def test_a_long_traceback_keeps_its_end_and_is_marked() -> None:
    kept, changed = storable("x" * 1000 + "ValueError: boom", 100, keep="end")
    assert changed
    assert kept.startswith(CUT_MARK)
    assert kept.endswith("ValueError: boom")


def test_a_limit_below_the_mark_still_holds() -> None:
    assert storable("é" * 10, 3) == ("é", True)


@given(
    st.text(st.characters(codec=None), max_size=200),
    st.integers(0, 300),
    st.sampled_from(["start", "end"]),
)
def test_whatever_comes_out_fits_and_is_storable(text: str, limit: int, keep: Keep) -> None:
    kept, changed = storable(text, limit, keep=keep)
    raw = kept.encode()
    assert len(raw) <= limit
    assert "\0" not in kept
    assert changed == (kept != text)


@pytest.mark.parametrize("key", ["a", "order:12", "x" * 255, "ключ", "a b", "日本"])
def test_printable_texts_may_be_keys(key: str) -> None:
    assert printable_key(key) is None
    assert is_printable(key)


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("", "blank"),
        ("   ", "blank"),
        ("\u00a0", "blank"),
        ("x" * 256, "256"),
        ("a\nb", "printable"),
        ("a\0", "printable"),
        ("\ud800", "printable"),
        ("a\u202eb", "printable"),
        ("a\u200b", "printable"),
    ],
)
def test_other_texts_may_not_and_it_is_said_why(key: str, why: str) -> None:
    assert why in (printable_key(key) or "")
    assert not is_printable(key)
