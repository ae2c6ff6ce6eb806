"""The picture of a job's life: where an instant is on the axis, and which marks are drawn for what."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from app.control.timeline import Span, SpanKind, Timeline
from app.dashboard.axis import axis_of
from app.dashboard.waterfall import Waterfall, waterfall_of
from app.domain.outcome import ErrorInfo, OutcomeKind
from app.domain.step import Place, StepKind

START = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def attempt(
    number: int, start: float, end: float | None, outcome: OutcomeKind | None, reached: str | None = None
) -> Span:
    is_failed = outcome is OutcomeKind.RETRIED
    return Span(
        kind=SpanKind.ATTEMPT,
        name=f"attempt {number}",
        started_at=at(start),
        ended_at=None if end is None else at(end),
        claim_no=number,
        outcome=outcome,
        reached=reached,
        error=ErrorInfo(type="E", message="", code="STEP_TIMEOUT") if is_failed else None,
    )


def step(name: str, kind: StepKind, start: float, end: float | None, claim_no: int | None) -> Span:
    is_body = kind in {StepKind.RUN, StepKind.TRANSACTION}
    return Span(
        kind=SpanKind.STEP if is_body else SpanKind.WAIT,
        name=name,
        started_at=at(start),
        ended_at=None if end is None else at(end),
        claim_no=claim_no,
        step_kind=kind,
        place=Place("", 0),
    )


def drawn(*spans: Span, end: float | None = None, is_folded: bool = True) -> Waterfall:
    timeline = Timeline(spans=spans, is_cut=False)
    ended = None if end is None else at(end)
    return waterfall_of(timeline, created=START, ended=ended, now=at(100_000), is_folded=is_folded)


SECONDS = st.floats(min_value=0.001, max_value=1e6)


@given(st.lists(st.tuples(SECONDS, SECONDS), max_size=30), st.booleans())
def test_an_axis_has_no_hole_and_goes_one_way(lengths: list[tuple[float, float]], is_folded: bool) -> None:
    attempts, now = [], 0.0
    for idle, lasted in lengths:
        attempts.append((at(now + idle), at(now + idle + lasted)))
        now += idle + lasted
    axis = axis_of(attempts, first=START, last=at(now + 1), is_folded=is_folded)
    assert abs(sum(each.width for each in axis.stretches) - 100) < 0.01
    assert sum(each.is_attempt for each in axis.stretches) == len(attempts)
    places = [axis.x(each.start) for each in axis.stretches]
    assert places == sorted(places)
    assert all(0 <= x <= 100 for x in places)


def test_a_long_idle_stretch_is_folded_and_carries_its_length() -> None:
    fall = drawn(
        attempt(1, 1, 2, OutcomeKind.RETRIED),
        attempt(2, 7_202, 7_203, OutcomeKind.COMPLETED),
        end=7_203,
    )
    idle = [mark for mark in fall.lane if mark.kind == "line" and mark.text]
    assert [(mark.text, mark.state) for mark in idle] == [("2 h", "delayed")]
    assert idle[0].width < 10
    assert [mark.title for mark in fall.lane if mark.kind == "att"] == [
        "attempt 1 retried, 1.0 s",
        "attempt 2 completed, 1.0 s",
    ]


def test_true_to_scale_the_axis_is_linear() -> None:
    fall = drawn(
        attempt(1, 0, 25, OutcomeKind.RETRIED), attempt(2, 75, 100, OutcomeKind.COMPLETED), end=100, is_folded=False
    )
    assert [round(band.width) for band in fall.bands] == [25, 25]


def test_what_broke_an_attempt_is_drawn_in_the_row_it_reached() -> None:
    fall = drawn(
        attempt(1, 0, 30, OutcomeKind.RETRIED, reached="charge"),
        step("load", StepKind.RUN, 0, 1, 1),
        attempt(2, 40, 46, OutcomeKind.INTERRUPTED, reached="charge"),
        end=46,
    )
    load, charge = fall.rows
    assert [mark.state for mark in load.marks] == ["ok"]
    assert [mark.state for mark in charge.marks] == ["failed", "interrupted"]
    assert "STEP_TIMEOUT" in charge.marks[0].title
    assert "not counted" in charge.marks[1].title
    assert charge.marks[0].x > load.marks[0].x, "it began where the last recorded step ended"
    assert charge.state == "failed"


def test_a_step_read_from_memory_is_marked_where_it_was_read() -> None:
    replay = Span(kind=SpanKind.REPLAY, name="load", started_at=at(10), ended_at=at(10), claim_no=2)
    fall = drawn(
        attempt(1, 0, 1, OutcomeKind.SUSPENDED),
        step("load", StepKind.RUN, 0, 1, 1),
        step("nap", StepKind.SLEEP, 1, 3_601, 1),
        attempt(2, 3_601, 3_602, OutcomeKind.COMPLETED),
        replay,
        end=3_602,
    )
    load, nap = fall.rows
    assert {mark.state for mark in load.marks} == {"ok", "memo"}
    assert (nap.marks[0].state, nap.marks[0].text) == ("sleep", "1 h")
    assert [mark.state for mark in fall.lane] == ["suspended", "sleep", "completed"]


def test_a_job_that_nothing_has_happened_to_is_drawn_too() -> None:
    fall = drawn()
    assert fall.is_open
    assert fall.rows == ()
    assert fall.lane[0].title.startswith("delayed")
