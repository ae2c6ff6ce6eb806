"""Looks told apart: the numbers of news, and what a follower that comes back is told."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from app.control.changes import Follower, Look, News, NewsKind, Position
from app.domain.job import Counters, JobId, RunId
from app.domain.outcome import OutcomeKind
from app.domain.snapshot import AttemptView, JobView
from app.domain.state import State
from app.domain.step import LogLine, Place, ProgressView, RunHistory, RunView, StepKind, StepView

NOW = datetime(2026, 11, 30, tzinfo=UTC)
ID = UUID(int=7)
JOB = JobView(
    id=JobId(ID),
    run_id=RunId(ID),
    name="demo.job",
    queue="default",
    state=State.RUNNING,
    state_reason=None,
    priority=5,
    tenant="default",
    counters=Counters(attempt=1, claim_no=1),
    max_attempts=25,
    max_crashes=3,
    created_at=NOW,
)
DONE = replace(JOB, state=State.DONE, finished_at=NOW)


def step(seq: int) -> StepView:
    return StepView(
        seq=seq,
        name=f"step {seq}",
        kind=StepKind.RUN,
        place=Place("", seq),
        value=None,
        claim_no=1,
        code_version="1",
        started_at=NOW,
        ended_at=NOW,
    )


def attempt(number: int) -> AttemptView:
    return AttemptView(
        number=number,
        outcome=OutcomeKind.RETRIED,
        cause="error",
        counted=True,
        worker_id=None,
        host=None,
        code_version=None,
        started_at=NOW,
        ended_at=NOW,
    )


def look(*seqs: int, view: JobView | None = JOB, attempts: tuple[AttemptView, ...] = (), at: float = 0.0) -> Look:
    run = RunView(history=RunHistory(steps=tuple(step(seq) for seq in seqs)))
    return Look(view, attempts, run, at)


def told(news: list[News]) -> list[str]:
    """Give the kinds, and of a step its number."""
    return [str(one.item.seq) if isinstance(one.item, StepView) else one.kind.value for one in news]


def test_nothing_is_told_twice() -> None:
    follower = Follower()
    assert told(follower.news(look(1, 2))) == ["state", "1", "2"]
    assert told(follower.news(look(1, 2))) == []
    assert told(follower.news(look(1, 2, 3))) == ["3"]
    assert told(follower.news(look(1, 2, 3, view=DONE, attempts=(attempt(1),)))) == ["attempt", "state", "end"]
    assert follower.news(look(4, view=DONE)) == []


def test_a_step_that_becomes_visible_late_is_told() -> None:
    follower = Follower()
    follower.news(look(1, 3))
    news = follower.news(look(1, 2, 3, at=1.0))
    assert told(news) == ["2"]
    assert follower.after == 0
    follower.news(look(1, 2, 3, 4, at=5.5))
    assert follower.after == 3, "what was seen more than five seconds ago, and all below it"
    assert told(follower.news(look(4, 5, at=6.0))) == ["5"]


def test_numbers_grow_with_every_piece_of_news_and_lead_back() -> None:
    follower = Follower()
    news = follower.news(look(10, 11, attempts=(attempt(1),)))
    news += follower.news(look(10, 11, 12, view=replace(JOB, progress=ProgressView(value=0.5, message=None, at=NOW))))
    numbers = [one.number for one in news]
    assert numbers == sorted(set(numbers))
    for position, one in enumerate(news):
        again = Follower(Position.read(str(one.number)))
        found = again.news(look(10, 11, 12, attempts=(attempt(1),)))
        missed = [two.kind for two in news[position + 1 :] if two.kind in {NewsKind.STEP, NewsKind.ATTEMPT}]
        assert [two.kind for two in found] == [
            NewsKind.STATE,
            *sorted(missed, key=lambda kind: kind is NewsKind.ATTEMPT),
        ]
        assert all(two.number > one.number for two in found)


def test_who_comes_back_is_told_of_a_step_that_came_late() -> None:
    first = Follower().news(look(1, 3))[-1]
    position = Position.read(str(first.number))
    assert position == Position(seq=3, items=2)
    assert told(Follower(position).news(look(1, 3, 4))) == ["state", "4"]
    assert told(Follower(position).news(look(1, 2, 3))) == ["state", "1", "2", "3"]


def test_who_comes_back_to_a_new_run_is_told_of_its_steps_alone() -> None:
    last = Follower().news(look(1, 2, 3))[-1]
    assert told(Follower(Position.read(str(last.number))).news(look(9))) == ["state", "9"]


def test_progress_that_is_said_again_is_no_news() -> None:
    follower = Follower()
    half = ProgressView(value=0.5, message="half", at=NOW)
    assert told(follower.news(look(view=replace(JOB, progress=half)))) == ["state", "progress"]
    again = replace(half, at=NOW + timedelta(seconds=1))
    assert told(follower.news(look(view=replace(JOB, progress=again)))) == []
    assert told(follower.news(look(view=replace(JOB, progress=replace(again, message="more"))))) == ["progress"]


def test_a_job_that_is_gone_ends() -> None:
    follower = Follower()
    follower.news(look())
    (end,) = follower.news(Look(None))
    assert (end.kind, end.item, follower.has_ended) == (NewsKind.END, None, True)


def test_lines_and_steps_are_told_in_one_order() -> None:
    line = LogLine(seq=2, at=NOW, claim_no=1, message="between")
    run = RunView(history=RunHistory(steps=(step(1), step(3))), lines=(line,))
    assert told(Follower().news(Look(JOB, (), run))) == ["state", "1", "log", "3"]


@pytest.mark.parametrize("text", ["", "x", "-1", "+1", "1.0", "1_0", " 1", "9" * 38, "\u0661"])
def test_other_texts_are_no_position(text: str) -> None:
    assert Position.read(text) is None


def test_a_position_reads_as_it_was_written() -> None:
    position = Position(seq=2**63 - 1, attempt=12, items=999_999, count=3)
    assert Position.read(str(position.number)) == position
