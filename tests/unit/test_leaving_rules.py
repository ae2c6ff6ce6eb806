"""The rules that rolling restarts are held to see what they are there to see."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal
from uuid import UUID

import pytest

from tests.faults.checkers import (
    Body,
    Bounds,
    Departure,
    Resumed,
    Taken,
    left_in_order,
    resumed_before_new,
)
from tests.faults.departures import bodies_at
from tests.support.ledger import Event

WITHIN = Bounds(claim=1, told=1, released=1, gone=5)
STOPPED = Body(job="stopped", claim_no=1, must_read=True, told=10.1, ended=10.2, released=10.3)
STUCK = Body(job="stuck", claim_no=2, must_read=False, told=None, ended=None, released=16.0)
LONGER = Body(job="longer", claim_no=1, must_read=False, told=None, ended=12.0, released=None)
RIGHT = Departure(
    worker="w",
    asked=10.0,
    gone=14.9,
    claims=(9.0, 10.1),
    starts=(9.1,),
    bodies=(STOPPED, STUCK, LONGER),
    fates={("stopped", 1): "interrupted", ("stuck", 2): "abandoned", ("longer", 1): "completed"},
)
WAITS = Resumed(job="old", rank=8, visible=5.0, claimed=8.0)
TAKEN = Taken(job="new", rank=9, began=6.0, written=6.5)


def test_a_worker_that_left_in_order_is_let_pass() -> None:
    left_in_order(RIGHT, WITHIN)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (replace(RIGHT, claims=(9.0, 11.1)), "claimed"),
        (replace(RIGHT, starts=(11.5,)), "began bodies"),
        (replace(RIGHT, gone=15.1), "was gone after"),
        (replace(RIGHT, bodies=(replace(STOPPED, told=None),)), "never told"),
        (replace(RIGHT, bodies=(replace(STOPPED, told=11.1),)), "told 1.1"),
        (replace(RIGHT, bodies=(replace(STOPPED, released=None),)), "not ready again"),
        (replace(RIGHT, bodies=(replace(STOPPED, released=11.3),)), "ready 1.1"),
        (replace(RIGHT, fates={}, bodies=(STUCK,)), "never ended"),
        (replace(RIGHT, fates={("stuck", 2): "interrupted"}, bodies=(STUCK,)), "never ended"),
        (replace(RIGHT, fates={("longer", 2): "completed"}, bodies=(LONGER,)), "does not name"),
    ],
)
def test_each_way_of_leaving_wrongly_is_seen(wrong: Departure, says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        left_in_order(wrong, WITHIN)


HELD, OTHER = UUID(int=1), UUID(int=2)


def effect(
    kind: Literal["invoke", "ok"], mono: float, *, job: UUID = HELD, epoch: int = 1, name: str = "hold"
) -> Event:
    detail = {"name": f"faults.{name}"}
    return Event(op="effect", type=kind, mono=mono, wall=mono, pid=7, job=str(job), epoch=epoch, detail=detail)


@pytest.mark.parametrize("ends", [[], [effect("ok", 12.0)]])
def test_a_body_that_waits_in_this_start_must_read_its_signal(ends: list[Event]) -> None:
    (body,) = bodies_at([effect("invoke", 9.0), *ends], 10.0, {}, {HELD: 1})
    assert body.must_read


def test_a_start_that_does_not_wait_may_end_while_the_word_is_on_its_way() -> None:
    events = [effect("invoke", 9.999, epoch=2), effect("ok", 10.001, epoch=2)]
    (body,) = bodies_at(events, 10.0, {}, {HELD: 1})
    assert not body.must_read
    (body,) = bodies_at(events, 10.0, {}, {HELD: 2})
    assert body.must_read


@pytest.mark.parametrize("began", [9.5, 10.001])
@pytest.mark.parametrize(("name", "must"), [("hold", False), ("hold_sync", True)])
def test_only_a_thread_reads_beside_a_loop_that_is_blocked_or_about_to_be(began: float, name: str, must: bool) -> None:
    events = [effect("invoke", 9.0, name=name), effect("invoke", began, job=OTHER, name="block")]
    body, *_ = bodies_at(events, 10.0, {}, {HELD: 1})
    assert (body.job, body.must_read) == (HELD, must)


@pytest.mark.parametrize(
    "new",
    [
        replace(TAKEN, began=4.9),  # it could not have seen the other
        replace(TAKEN, written=8.1),  # while the other was being claimed
        replace(TAKEN, rank=7),  # of a more urgent priority
    ],
)
def test_a_new_job_may_be_claimed_before_the_other_is_there_or_while_it_is_claimed(new: Taken) -> None:
    resumed_before_new([WAITS], [new])


@pytest.mark.parametrize("waits", [WAITS, replace(WAITS, claimed=float("inf"))])
def test_a_new_job_claimed_past_one_that_waits_is_seen(waits: Resumed) -> None:
    with pytest.raises(AssertionError, match="new is new"):
        resumed_before_new([waits], [TAKEN])
