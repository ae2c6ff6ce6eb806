from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import CursorInvalid
from app.domain.job import JobId
from app.http.cursor import read_cursor, write_cursor

FILTERS = st.lists(st.none() | st.text(max_size=10), max_size=4)


@given(st.uuids(), FILTERS)
def test_a_cursor_gives_back_its_id(job_id: UUID, filters: list[str | None]) -> None:
    cursor = write_cursor(JobId(job_id), filters)
    assert read_cursor(cursor, filters) == job_id
    assert cursor.isascii()
    assert len(cursor) < 64


@given(st.uuids(), FILTERS, FILTERS)
def test_a_cursor_is_bound_to_its_filters(job_id: UUID, filters: list[str | None], others: list[str | None]) -> None:
    if filters != others:
        with pytest.raises(CursorInvalid):
            read_cursor(write_cursor(JobId(job_id), filters), others)


@given(st.text(max_size=60) | st.text(alphabet="ABCabc019-_=", max_size=60))
def test_no_other_text_is_a_cursor(text: str) -> None:
    with pytest.raises(CursorInvalid):
        read_cursor(text, [])


@given(st.uuids(), st.data())
def test_a_cursor_has_one_spelling(job_id: UUID, data: st.DataObject) -> None:
    cursor = write_cursor(JobId(job_id), ["a"])
    place = data.draw(st.integers(0, len(cursor)))
    for odd in ("=", "\n", " ", "!", "A"):
        with pytest.raises(CursorInvalid):
            read_cursor(cursor[:place] + odd + cursor[place:], ["a"])
