from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.domain.text import read_uuid
from app.http.requests import EnqueueBody


def run_at(text: object) -> datetime | None:
    return EnqueueBody.model_validate({"name": "a", "payload": 1, "run_at": text}, strict=True).run_at


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2027-01-31T12:00:00Z", datetime(2027, 1, 31, 12, tzinfo=UTC)),
        ("2027-01-31t12:00:00z", datetime(2027, 1, 31, 12, tzinfo=UTC)),
        ("2027-01-31T12:00:00+02:00", datetime(2027, 1, 31, 10, tzinfo=UTC)),
        ("2027-01-31T12:00:00.5-00:30", datetime(2027, 1, 31, 12, 30, 0, 500_000, tzinfo=UTC)),
        ("2027-01-31T12:00:00.123456789Z", datetime(2027, 1, 31, 12, 0, 0, 123_456, tzinfo=UTC)),
    ],
)
def test_instants_are_read(text: str, expected: datetime) -> None:
    assert run_at(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "2027-01-31", "2027-01-31T12:00Z", "2027-01-31T12:00:00", "2027-01-31 12:00:00Z", "2027-01-31T24:00:00Z",
        "2027-01-31T12:00:60Z", "2027-02-29T12:00:00Z", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-01:00", "10000-01-01T00:00:00Z", "2027-01-31T12:00:00+24:00", "2027-01-31T12:00:00+0200",
        "\uff12\uff10\uff12\uff17-01-31T12:00:00Z", "2027-01-31T12:00:00Z\n", "infinity",
        "now", "", 1, 1.5, True, [], {},
    ],
)  # fmt: skip
def test_what_is_no_instant_is_refused(text: object) -> None:
    with pytest.raises(ValidationError):
        run_at(text)


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(9000, 1, 1)), st.integers(-840, 840))  # noqa: DTZ001 - made aware below
def test_every_instant_that_is_written_is_read(moment: datetime, offset_minutes: int) -> None:
    aware = moment.replace(tzinfo=timezone(timedelta(minutes=offset_minutes)))
    assert run_at(aware.isoformat(timespec="microseconds")) == aware


@pytest.mark.parametrize("text", ["", "x", "0" * 32, "{00000000-0000-0000-0000-000000000000}", "urn:uuid:" + "0" * 36])
def test_an_id_has_one_form(text: str) -> None:
    assert read_uuid(text) is None
    assert str(read_uuid("0198C0F4-7C1A-7B3E-9A55-3F0A1C2D4E5F")) == "0198c0f4-7c1a-7b3e-9a55-3f0a1c2d4e5f"
