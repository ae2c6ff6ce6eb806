"""The drain's budget: the earliest deadline wins, later binds only tighten, what is done counts as done."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.clock import ManualClock
from app.lifecycle.drain import DrainBudget, DrainNotice

seconds = st.floats(min_value=0, max_value=600, allow_nan=False)
notices = st.builds(lambda started, span: DrainNotice(cause="x", started=started, seconds=span), seconds, seconds)


def clock() -> ManualClock:
    return ManualClock(datetime(2026, 1, 1, tzinfo=UTC))


@given(st.lists(notices, min_size=1, max_size=6))
def test_each_instant_is_the_earliest_of_all_binds_whatever_their_order(binds: list[DrainNotice]) -> None:
    budget = DrainBudget(monotonic=clock().monotonic)
    before: float | None = None
    for bind in binds:
        budget.bind(bind)
        assert budget.deadline is not None
        assert before is None or budget.deadline <= before
        before = budget.deadline
    assert budget.deadline == min(bind.deadline for bind in binds)
    assert budget.cancel_at == min(bind.cancel_at for bind in binds)
    assert budget.abandon_at == min(bind.abandon_at for bind in binds)
    assert budget.first is binds[0]


@given(notices)
def test_bodies_are_cancelled_before_they_are_abandoned_before_the_deadline(notice: DrainNotice) -> None:
    assert notice.started <= notice.cancel_at <= notice.abandon_at <= notice.deadline
    assert notice.reserve <= 2.0


def test_the_reserve_is_two_seconds_of_a_long_budget_and_a_fifth_of_a_short_one() -> None:
    assert DrainNotice(cause="x", started=0, seconds=25).cancel_at == 23
    assert DrainNotice(cause="x", started=0, seconds=25).abandon_at == 24
    assert DrainNotice(cause="x", started=0, seconds=1).cancel_at == pytest.approx(0.8)


async def test_an_unbound_wait_has_no_deadline_until_one_is_bound() -> None:
    time = clock()
    budget, done = DrainBudget(monotonic=time.monotonic), asyncio.Event()
    waiting = asyncio.ensure_future(budget.wait(done, until=lambda bound: bound.deadline))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert not budget.is_bound
    time.advance(timedelta(seconds=60))
    budget.bind(DrainNotice(cause="x", started=0, seconds=30))
    assert await waiting is False


async def test_what_is_done_counts_with_the_budget_spent() -> None:
    budget, done = DrainBudget(monotonic=clock().monotonic), asyncio.Event()
    budget.bind(DrainNotice(cause="x", started=-10, seconds=1))
    done.set()
    assert await budget.wait(done, until=lambda bound: bound.deadline) is True


async def test_what_is_cut_by_a_time_of_its_own_is_cut_sooner_by_a_bind_that_lands_meanwhile() -> None:
    budget = DrainBudget()
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def waits() -> None:
        async with budget.within(60):
            await asyncio.Event().wait()

    waiting = asyncio.ensure_future(waits())
    await asyncio.sleep(0)
    budget.bind(DrainNotice(cause="SIGTERM", started=time.monotonic(), seconds=30))
    budget.bind(DrainNotice(cause="SIGTERM", started=time.monotonic(), seconds=0.05))
    budget.bind(DrainNotice(cause="SIGTERM", started=time.monotonic(), seconds=30))
    with pytest.raises(TimeoutError):
        await waiting
    assert loop.time() - began < 10


async def test_a_time_of_its_own_is_not_stretched_by_a_bind() -> None:
    budget = DrainBudget()
    budget.bind(DrainNotice(cause="SIGTERM", started=time.monotonic(), seconds=60))
    with pytest.raises(TimeoutError):
        async with budget.within(0.01):
            await asyncio.Event().wait()
    async with budget.within(60):
        pass


async def test_a_bind_that_lands_as_a_time_of_its_own_is_over_is_bound_all_the_same() -> None:
    """As after a freeze, when all that was due meanwhile comes at once: the drain must not fail of it."""
    time = clock()
    budget = DrainBudget(monotonic=time.monotonic)
    notice = DrainNotice(cause="x", started=0, seconds=30)

    async def is_cut() -> None:
        async with budget.within(0.001):
            try:
                await asyncio.Event().wait()
            finally:
                budget.bind(notice)

    with pytest.raises(TimeoutError):
        await is_cut()
    assert budget.deadline == notice.deadline
