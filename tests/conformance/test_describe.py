from __future__ import annotations

from datetime import timedelta

from app.domain.outcome import Completed, Interrupted, OutcomeKind, Retried, Snoozed
from app.domain.state import State
from app.drivers.protocol import PurgeQuery
from tests.conformance.endings import completed, dead_lettered
from tests.support.drivers import ERROR, DriverEnv, new_id, new_job

MINUTE = timedelta(minutes=1)


async def test_an_absent_job_is_none(env: DriverEnv) -> None:
    assert await env.driver.describe(new_id()) is None
    assert await env.ledger(new_id()) == ()


async def test_another_tenants_job_is_none(env: DriverEnv) -> None:
    job_id = await env.enqueue(tenant="acme")
    assert await env.driver.describe(job_id, tenant="other") is None
    assert await env.driver.describe(job_id, tenant="acme") is not None


async def test_the_last_error_stays_while_the_job_waits_and_runs_and_goes_when_it_is_done(env: DriverEnv) -> None:
    worker = await env.register()
    token = (await env.running(worker)).token
    await env.close_attempt(token, Retried(error=ERROR, delay=timedelta()))
    assert (await env.describe(token.job_id)).error == ERROR
    await env.driver.promote()
    assert (await env.describe(token.job_id)).error == ERROR
    token = (await env.claim_one(worker)).token
    view = await env.describe(token.job_id)
    assert (view.state, view.error, view.last_outcome) == (State.RUNNING, ERROR, OutcomeKind.RETRIED)
    await env.close_attempt(token, Interrupted(cause="drain"))
    view = await env.describe(token.job_id)
    assert (view.error, view.last_outcome) == (None, OutcomeKind.INTERRUPTED)
    token = (await env.claim_one(worker)).token
    await env.close_attempt(token, Completed())
    view = await env.describe(token.job_id)
    assert (view.error, view.last_outcome) == (None, OutcomeKind.COMPLETED)


async def test_a_snoozed_job_shows_the_suspension_only_while_it_waits(env: DriverEnv) -> None:
    token = (await env.running()).token
    await env.close_attempt(token, Snoozed(delay=MINUTE))
    assert (await env.describe(token.job_id)).last_outcome is OutcomeKind.SUSPENDED
    await env.advance(MINUTE)
    await env.driver.promote()
    view = await env.describe(token.job_id)
    assert (view.state, view.last_outcome) == (State.READY, None)


async def test_a_claim_of_an_absent_worker_has_no_lease(env: DriverEnv) -> None:
    worker = await env.register()
    token = (await env.running(worker)).token
    await env.forget_worker(worker)
    claim = (await env.describe(token.job_id)).claim
    assert claim is not None
    assert (claim.worker_id, claim.lease_until, claim.heartbeat_age_ms) == (worker, None, None)


# --- finished_among


async def test_finished_among_names_ended_and_absent_jobs(env: DriverEnv) -> None:
    ended = {await completed(env, {}), await dead_lettered(env, {})}
    running = (await env.running()).token.job_id
    ready = await env.enqueue()
    delayed = await env.enqueue(delay=MINUTE)
    absent = new_id()
    asked = [*ended, running, ready, delayed, absent]
    assert await env.driver.finished_among(asked) == {*ended, absent}
    assert await env.driver.finished_among(()) == frozenset()


async def test_a_purged_job_counts_as_finished(env: DriverEnv) -> None:
    job_id = await completed(env, {})
    await env.advance(MINUTE)
    await env.driver.purge(PurgeQuery(state=State.DONE, older_than=timedelta(seconds=1)))
    assert await env.driver.finished_among((job_id,)) == {job_id}


# --- attempts


async def test_the_ledger_is_in_order_and_the_completing_attempt_is_last(env: DriverEnv) -> None:
    worker = await env.register(host="host-c", code_version="3")
    token = (await env.running(worker)).token
    await env.close_attempt(token, Retried(error=ERROR, delay=timedelta()))
    await env.driver.promote()
    await env.close_attempt((await env.claim_one(worker)).token, Snoozed(delay=timedelta()))
    await env.driver.promote()
    await env.close_attempt((await env.claim_one(worker)).token, Interrupted(cause="drain"))
    last = await env.claim_one(worker)
    await env.advance(timedelta(seconds=4))
    await env.close_attempt(last.token, Completed(late=True))
    rows = await env.ledger(token.job_id)
    assert [row.number for row in rows] == [1, 3, 4]
    assert [row.outcome for row in rows] == [OutcomeKind.RETRIED, OutcomeKind.INTERRUPTED, OutcomeKind.COMPLETED]
    assert [row.counted for row in rows] == [True, False, True]
    done = rows[-1]
    assert (done.worker_id, done.host, done.code_version, done.cause) == (worker, "host-c", "3", "late")
    assert (done.started_at, done.ended_at, done.error) == (last.claimed_at, env.now(), None)


async def test_a_running_attempt_is_not_in_the_ledger(env: DriverEnv) -> None:
    token = (await env.running()).token
    assert await env.ledger(token.job_id) == ()


async def test_a_long_ledger_keeps_its_first_20_and_last_80_rows(env: DriverEnv) -> None:
    worker = await env.register()
    job_id = await env.enqueue(max_attempts=1000)
    for _ in range(107):
        token = (await env.claim_one(worker)).token
        await env.close_attempt(token, Interrupted(cause="drain"))
    numbers = [row.number for row in await env.ledger(job_id)]
    assert numbers == [*range(1, 21), *range(28, 108)]
    await env.close_attempt((await env.claim_one(worker)).token, Completed())
    numbers = [row.number for row in await env.ledger(job_id)]
    assert numbers == [*range(1, 21), *range(28, 109)]


async def test_a_ledger_of_exactly_100_rows_is_whole(env: DriverEnv) -> None:
    worker = await env.register()
    job_id = await env.enqueue()
    for _ in range(100):
        await env.close_attempt((await env.claim_one(worker)).token, Interrupted(cause="drain"))
    assert [row.number for row in await env.ledger(job_id)] == [*range(1, 101)]


async def test_ledgers_of_different_jobs_do_not_mix(env: DriverEnv) -> None:
    worker = await env.register()
    jobs = [new_job(), new_job()]
    await env.driver.enqueue_many(jobs)
    for held in await env.claim(worker):
        await env.close_attempt(held.token, Interrupted(cause=f"for {held.token.job_id}"))
    for job in jobs:
        (row,) = await env.ledger(job.id)
        assert row.cause == f"for {job.id}"
