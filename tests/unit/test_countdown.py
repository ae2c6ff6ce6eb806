"""The axis of a drain: when its runs are cancelled and abandoned, told from when the worker was told itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.dashboard.countdown import Mark, countdown_of
from app.domain.job import WorkerId
from app.domain.snapshot import WorkerView

BEGAN = datetime(2026, 11, 30, 12, tzinfo=UTC)


def leaving(seconds: float | None, *, asked_by: str | None = None, began: datetime | None = BEGAN) -> WorkerView:
    return WorkerView(
        id=WorkerId(1),
        host="h",
        pid=1,
        code_version="1",
        queues=(),
        concurrency=1,
        started_at=BEGAN,
        lease_until=BEGAN,
        heartbeat_age_ms=0,
        lost_at=None,
        closed_at=None,
        drain_phase="inflight",
        wakeup=None,
        running=0,
        drain_asked_at=began,
        drain_asked_by=asked_by,
        drain_deadline_at=None if seconds is None else BEGAN + timedelta(seconds=seconds),
    )


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (25.004, ("23 s", "24 s", "25 s")),
        (24.997, ("23 s", "24 s", "25 s")),
        (5.0, ("4.0 s", "4.5 s", "5.0 s")),
        (120.0, ("1 m 58 s", "1 m 59 s", "2 m")),
    ],
)
def test_bodies_are_cancelled_and_abandoned_before_the_end(seconds: float, words: tuple[str, ...]) -> None:
    shown = countdown_of(leaving(seconds), BEGAN)
    assert shown is not None
    assert (shown.cancel.after, shown.abandon.after, shown.gone.after) == words
    assert 0.0 == shown.now.x < shown.cancel.x < shown.abandon.x < shown.gone.x < 90


@pytest.mark.parametrize(
    ("after", "mark"), [(-3.0, Mark(x=0.0, after="0 ms")), (12.5, Mark(x=40.0, after="12 s")), (99.0, None)]
)
def test_now_is_on_the_axis(after: float, mark: Mark | None) -> None:
    shown = countdown_of(leaving(25.0), BEGAN + timedelta(seconds=after))
    assert shown is not None
    assert shown.now == (mark or shown.gone)
    assert (shown.began, countdown_of(leaving(25.0, asked_by="ann"), BEGAN) is not None) == ("told", True)


def test_a_drain_that_was_asked_for_is_told_from_then() -> None:
    shown = countdown_of(leaving(25.0, asked_by="ann"), BEGAN)
    assert shown is not None
    assert shown.began == "asked"


def test_without_a_deadline_or_a_beginning_there_is_no_axis() -> None:
    assert countdown_of(leaving(None), BEGAN) is None
    assert countdown_of(leaving(25.0, began=None), BEGAN) is None
    assert countdown_of(leaving(0.0), BEGAN) is None
