"""Reports of drained workers: kept, replaced, bounded, and read with how soon the jobs were claimed again."""

from __future__ import annotations

from datetime import timedelta

from app.domain import drain
from app.domain.drain import DrainedRun, DrainReport
from app.domain.job import ClaimedJob, WorkerId
from app.domain.ledger import CAUSE_DRAIN
from app.domain.outcome import Completed, Interrupted, Suspended
from app.drivers.memory.rows import Drained, Worker
from tests.conformance.runs import a_sleep, a_step
from tests.support.drivers import DriverEnv, MemoryEnv, PostgresEnv, new_job, new_worker

SECOND = timedelta(seconds=1)


def run_of(claimed: ClaimedJob, fate: str, *, has_ignored: bool = False) -> DrainedRun:
    token = claimed.token
    return DrainedRun(
        job_id=token.job_id, claim_no=token.claim_no, name=claimed.name, fate=fate, has_ignored=has_ignored
    )


async def report(env: DriverEnv, worker: WorkerId, *runs: DrainedRun, reason: str = "SIGTERM") -> None:
    async with env.driver.open_heartbeat() as heartbeat:
        await heartbeat.report_drain(DrainReport(worker_id=worker, reason=reason, lasted=3 * SECOND, runs=runs))


async def test_a_report_says_who_when_why_and_what_became_of_each_run(env: DriverEnv) -> None:
    worker = await env.register(host="host-z", code_version="4.2")
    await env.driver.enqueue_many([new_job() for _ in range(3)])
    runs = [
        run_of(claimed, fate, has_ignored=fate == "abandoned")
        for claimed, fate in zip(await env.claim(worker), ("completed", "interrupted", "abandoned"), strict=True)
    ]
    await report(env, worker, *runs)
    (view,) = await env.driver.drains(limit=10)
    assert (view.worker_id, view.host, view.code_version, view.reason) == (worker, "host-z", "4.2", "SIGTERM")
    assert (view.started_at, view.ended_at) == (env.now() - 3 * SECOND, env.now())
    assert [one.run for one in view.runs] == runs
    assert {one.claimed_after for one in view.runs} == {None}


async def test_the_time_to_the_next_claim_counts_from_the_interruption(env: DriverEnv) -> None:
    """Wherever the next claim is by now: running, ended, or itself a row of the ledger."""
    worker = await env.register()
    await env.driver.enqueue_many([new_job() for _ in range(4)])
    claims = await env.claim(worker)
    for claimed in claims:
        await env.close_attempt(claimed.token, Interrupted(cause=CAUSE_DRAIN))
    await env.advance(SECOND)
    await report(env, worker, *(run_of(claimed, "interrupted") for claimed in claims))
    await env.advance(SECOND)
    successor = await env.register(lease_ms=600_000)
    again = await env.claim(successor, room=3)
    done, cut, running = (next(one for one in again if one.token.job_id == old.token.job_id) for old in claims[:3])
    await env.advance(SECOND)
    await env.close_attempt(done.token, Completed())
    await env.close_attempt(cut.token, Interrupted(cause=CAUSE_DRAIN))
    await env.advance(SECOND)
    (view,) = await env.driver.drains(limit=10)
    assert running.token.job_id == view.runs[2].run.job_id
    assert [one.claimed_after for one in view.runs] == [2 * SECOND, 2 * SECOND, 2 * SECOND, None]


async def test_a_claim_that_suspended_was_there_when_its_first_step_began(env: DriverEnv) -> None:
    """No row of the ledger tells of it; without a step, of when it suspended."""
    worker = await env.register()
    await env.driver.enqueue_many([new_job() for _ in range(2)])
    claims = await env.claim(worker)
    for claimed in claims:
        await env.close_attempt(claimed.token, Interrupted(cause=CAUSE_DRAIN))
    await report(env, worker, *(run_of(claimed, "interrupted") for claimed in claims))
    await env.advance(SECOND)
    again = {one.token.job_id: one for one in await env.claim(await env.register(lease_ms=600_000))}
    stepped, plain = (again[claimed.token.job_id] for claimed in claims)
    assert await env.driver.record_step(stepped.token, a_step())
    await env.advance(SECOND)
    for held in (stepped, plain):
        await env.close_attempt(held.token, Suspended(waits=(a_sleep(number=1),)))
    (view,) = await env.driver.drains(limit=10)
    assert [one.claimed_after for one in view.runs] == [SECOND, 2 * SECOND]


async def test_an_abandoned_job_waits_from_the_end_of_the_drain(env: DriverEnv) -> None:
    worker = await env.register()
    claimed = await env.running(worker)
    await env.abandon(worker, [claimed.token], 5 * SECOND)
    await report(env, worker, run_of(claimed, "abandoned"))
    await env.advance(6 * SECOND)
    await env.driver.reap()
    await env.claim_one(await env.register())
    (view,) = await env.driver.drains(limit=10)
    assert view.runs[0].claimed_after == 6 * SECOND


async def test_what_was_not_cut_is_not_waited_for(env: DriverEnv) -> None:
    worker = await env.register()
    claimed = await env.running(worker)
    await env.close_attempt(claimed.token, Interrupted(cause=CAUSE_DRAIN))
    await report(env, worker, run_of(claimed, "other"))
    await env.claim_one(worker)
    (view,) = await env.driver.drains(limit=10)
    assert view.runs[0].claimed_after is None


async def test_a_later_report_of_a_worker_takes_the_place_of_the_earlier(env: DriverEnv) -> None:
    worker = await env.register()
    claimed = await env.running(worker)
    await report(env, worker, run_of(claimed, "abandoned"))
    await env.advance(SECOND)
    await report(env, worker, run_of(claimed, "completed"))
    (view,) = await env.driver.drains(limit=10)
    assert [one.run.fate for one in view.runs] == ["completed"]
    assert view.ended_at == env.now()


async def test_reports_come_newest_first_and_page_by_page(env: DriverEnv) -> None:
    workers = [await env.register() for _ in range(4)]
    for worker in workers[:3]:
        await report(env, worker)
    await report(env, WorkerId(workers[3] + 1000))  # nobody has heard of it
    newest = await env.driver.drains(limit=2)
    assert [view.worker_id for view in newest] == [workers[2], workers[1]]
    assert [view.worker_id for view in await env.driver.drains(limit=2, before=workers[1])] == [workers[0]]
    assert await env.driver.drains(limit=2, before=workers[0]) == ()


async def test_only_the_newest_reports_are_kept(env: DriverEnv) -> None:
    await fill(env, count=drain.MOST_REPORTS)
    worker = await env.register()
    await report(env, worker)
    kept = await env.driver.drains(limit=drain.MOST_REPORTS + 10)
    assert len(kept) == drain.MOST_REPORTS
    assert (kept[0].worker_id, kept[-1].worker_id) == (worker, -drain.MOST_REPORTS + 1)


async def fill(env: DriverEnv, *, count: int) -> None:
    """Let there be so many older reports; registering that many workers would take longer than it is worth."""
    if isinstance(env, PostgresEnv):
        await env.execute(
            "insert into outlast.drain(worker, host, code_version, reason, started_at, job_ids, claim_nos, names,"
            f" fates, ignored) select -i, 'h', '1', 'SIGTERM', now(), '{{}}', '{{}}', '{{}}', '{{}}', '{{}}'"
            f" from generate_series(1, {count}) i"
        )
        return
    assert isinstance(env, MemoryEnv)
    store = env.memory._store
    for number in range(1, count + 1):
        worker_id = WorkerId(-number)
        store.workers[worker_id] = Worker(
            id=worker_id, about=new_worker(), started_at=env.now(), renewed_at=env.now(), lease_until=env.now()
        )
        told = DrainReport(worker_id=worker_id, reason="SIGTERM", lasted=SECOND, runs=())
        store.drains[worker_id] = Drained(report=told, at=env.now())
