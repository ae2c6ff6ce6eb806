"""A job that was staged early in a long transaction begins with its commit: nobody's before, and not late after it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.domain.outbox import Pass
from app.domain.state import State
from app.observability.metrics import Metrics
from app.observability.telemetry import Telemetry
from app.outbox.passes import Passes
from tests.support.drivers import NAME, QUEUE, new_job
from tests.support.outbox import BATCH, Outbox

LONG = timedelta(seconds=60)
DELAY = timedelta(seconds=10)


async def test_a_job_of_a_long_transaction_is_nobodys_before_the_commit_and_not_late_after_it(
    outbox: Outbox, passes: Passes
) -> None:
    env = outbox.env
    worker = await env.register(lease_ms=600_000)
    at_once, delayed = new_job(), new_job(delay=DELAY)
    async with outbox.transaction() as transaction:
        await outbox.store.stage(transaction, [at_once, delayed])
        await env.advance(LONG)
        # Others come and go meanwhile.
        other = await outbox.staged()
        assert await passes.once(BATCH) == Pass(published=1)
        assert [one.token.job_id for one in await env.claim(worker)] == [other]
        assert (await outbox.view()).lag == timedelta(), "nobody sees the rows"
        begun = env.now()
    assert (await outbox.view()).lag == LONG, "the age of a row counts from its staging"
    await env.advance(timedelta(seconds=1))
    _look_from_the_front(outbox)
    assert await passes.once(BATCH) == Pass(published=2)
    (queue,) = [one for one in await env.driver.queues() if one.name == QUEUE]
    assert (queue.depth[State.READY], queue.oldest_ready_seconds) == (2, 0.0)
    await env.advance(timedelta(seconds=2))
    claimed = await env.claim(worker)
    assert {one.token.job_id for one in claimed} == {at_once.id, delayed.id}
    telemetry = Telemetry(metrics=Metrics())
    for one in claimed:
        telemetry.attempt_started(one)
    read = telemetry.metrics.registry.get_sample_value
    labels = {"job": NAME, "queue": QUEUE}
    assert read("outlast_queue_wait_seconds_count", labels) == 2
    assert read("outlast_queue_wait_seconds_sum", labels) == 4.0, "two seconds each, from when it could be claimed"
    views = [await env.describe(job.id) for job in (at_once, delayed)]
    assert all(view.created_at > begun for view in views)
    assert [view.run_at for view in views] == [None, begun - LONG + DELAY], "a delay counts from staging"


def _look_from_the_front(outbox: Outbox) -> None:
    """Do what a relay does every ten seconds: its other looks go on from where the last one ended."""
    looks: Any = getattr(outbox.store, "_looks", None)
    if looks is not None:
        looks.forget()


class UndoneError(Exception):
    """What a transaction ends with."""


async def test_a_transaction_that_is_rolled_back_after_long_leaves_nothing(outbox: Outbox, passes: Passes) -> None:
    async def staged_in_vain() -> None:
        async with outbox.transaction() as transaction:
            await outbox.store.stage(transaction, [new_job()])
            await outbox.env.advance(LONG)
            raise UndoneError

    with pytest.raises(UndoneError):
        await staged_in_vain()
    assert await passes.once(BATCH) == Pass()
    assert (await outbox.view()).lag == timedelta()
