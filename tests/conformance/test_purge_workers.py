"""Rows of workers that have left, drain reports, the audit: kept for their retention, and while a row needs them."""

from __future__ import annotations

from datetime import timedelta

from app.domain.audit import Action, AuditQuery
from app.domain.drain import DrainReport
from app.domain.job import WorkerId
from app.domain.outcome import Completed, DeadLettered
from app.domain.retention import Chore, Retention
from app.domain.state import DeadReason
from tests.support.audit import an_entry
from tests.support.drivers import ERROR, DriverEnv, new_job

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


async def left(env: DriverEnv) -> WorkerId:
    """Give a worker that has left in order."""
    worker = await env.register()
    await env.driver.close_worker(worker)
    return worker


async def tidied(env: DriverEnv, retention: Retention | None = None) -> int:
    """Go once over ended jobs and once over workers; gives the number of workers that went."""
    for chore in (Chore.JOBS, Chore.DRAINS):
        assert (await env.driver.tidy(chore, retention or Retention())).is_over
    count = await env.driver.count_over(Chore.WORKERS, retention or Retention())
    deleted = (await env.driver.tidy(Chore.WORKERS, retention or Retention())).deleted
    assert count == deleted
    return deleted


async def test_a_worker_that_has_left_goes_after_its_retention(env: DriverEnv) -> None:
    await left(env)
    await env.advance(90 * DAY)
    assert await tidied(env) == 0
    await env.advance(SECOND)
    assert await tidied(env) == 1


async def test_a_worker_that_was_lost_goes_as_well(env: DriverEnv) -> None:
    await env.register()
    await env.vanish()
    await env.driver.reap()
    await env.advance(91 * DAY)
    assert await tidied(env) == 1


async def test_a_worker_that_lives_stays(env: DriverEnv) -> None:
    worker = await env.register(lease_ms=20 * 24 * 3600 * 1000)
    await env.advance(10 * DAY)
    assert await tidied(env, Retention(record=SECOND)) == 0
    assert [view.id for view in await env.driver.workers()] == [worker]


async def test_a_worker_stays_while_an_ended_job_names_it(env: DriverEnv) -> None:
    """The ledger shows where the job ran."""
    jobs = []
    for host in ("host-y", "host-z"):
        worker = await env.register(host=host)
        jobs.append(await env.enqueue())
        await env.close_attempt((await env.claim_one(worker)).token, Completed())
        await env.driver.close_worker(worker)
    long = Retention(done=200 * DAY, dead=200 * DAY, source=200 * DAY, record=90 * DAY)
    await env.advance(100 * DAY)
    assert await tidied(env, long) == 0
    assert [attempt.host for job_id in jobs for attempt in await env.ledger(job_id)] == ["host-y", "host-z"]
    await env.advance(102 * DAY)
    assert await tidied(env, long) == 2


async def test_workers_stay_while_dead_letters_name_them_that_a_round_has_passed_over(env: DriverEnv) -> None:
    for _ in range(2):
        worker = await env.register()
        outcome = DeadLettered(error=ERROR, reason=DeadReason.TERMINAL)
        await env.close_attempt((await env.running(worker)).token, outcome)
        await env.driver.close_worker(worker)
    retention = Retention(dead=200 * DAY, source=200 * DAY)
    await env.advance(100 * DAY)
    assert await tidied(env, retention) == 0
    await env.advance(101 * DAY)
    assert await tidied(env, retention) == 2


async def test_a_workers_row_outlives_the_shortest_time_a_job_is_kept(env: DriverEnv) -> None:
    """A round does not look at jobs that are younger than that: they may name it."""
    brief = Retention(record=SECOND)
    worker = await env.register(host="host-z")
    job_id = await env.enqueue()
    held = await env.claim_one(worker)
    await env.close_attempt(held.token, Completed())
    await env.driver.close_worker(worker)
    await env.advance(7 * DAY)
    assert await tidied(env, brief) == 0
    assert [attempt.host for attempt in await env.ledger(job_id)] == ["host-z"]


async def test_a_worker_stays_while_a_claim_names_it(env: DriverEnv) -> None:
    worker = await env.register()
    await env.driver.enqueue(new_job())
    await env.claim_one(worker)
    await env.driver.close_worker(worker)
    await env.advance(91 * DAY)
    assert await tidied(env) == 0
    await env.driver.reap()
    assert await tidied(env) == 1


async def test_a_report_of_a_drain_goes_after_its_retention_and_its_worker_with_it(env: DriverEnv) -> None:
    worker = await env.register()
    async with env.driver.open_heartbeat() as heartbeat:
        await heartbeat.report_drain(DrainReport(worker_id=worker, reason="SIGTERM", lasted=SECOND, runs=()))
    await env.driver.close_worker(worker)
    brief = Retention(record=9 * DAY)
    await env.advance(9 * DAY)
    assert await tidied(env, brief) == 0
    assert [view.worker_id for view in await env.driver.drains(limit=10)] == [worker]
    await env.advance(SECOND)
    assert await env.driver.count_over(Chore.DRAINS, brief) == 1
    assert await tidied(env, brief) == 1
    assert await env.driver.drains(limit=10) == ()


async def test_a_worker_stays_while_a_report_of_its_drain_names_it(env: DriverEnv) -> None:
    """The report shows its host."""
    worker = await left(env)
    await env.advance(5 * DAY)
    async with env.driver.open_heartbeat() as heartbeat:
        await heartbeat.report_drain(DrainReport(worker_id=worker, reason="SIGTERM", lasted=SECOND, runs=()))
    await env.advance(5 * DAY)
    assert await tidied(env, Retention(record=9 * DAY)) == 0
    assert [view.worker_id for view in await env.driver.drains(limit=10)] == [worker]
    await env.advance(5 * DAY)
    assert await tidied(env, Retention(record=9 * DAY)) == 1


async def test_the_audit_goes_after_its_retention_row_by_row(env: DriverEnv) -> None:
    for age in (0, 1):
        await env.driver.keep_entry(an_entry(Action.QUEUE_PAUSE, None, actor=f"day {age}"))
        await env.advance(DAY)
    await env.advance(364 * DAY - SECOND)
    assert await env.driver.count_over(Chore.AUDIT, Retention()) == 1
    assert (await env.driver.tidy(Chore.AUDIT, Retention())).deleted == 1
    assert [row.actor for row in (await env.driver.audit(AuditQuery())).items] == ["day 1"]
    assert await env.driver.count_over(Chore.AUDIT, Retention(audit=DAY)) == 1
