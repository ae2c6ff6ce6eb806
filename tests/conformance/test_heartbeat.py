from __future__ import annotations

import asyncio
from datetime import timedelta

from app.domain.drain import DrainShown
from app.domain.job import WorkerId
from app.domain.outcome import Completed, Interrupted, OutcomeKind, SettleAnswer
from app.domain.snapshot import Renewal, Revocation
from app.domain.state import State
from app.drivers.protocol import PurgeQuery
from tests.support.drivers import LEASE, DriverEnv, new_job, with_token

SECOND = timedelta(seconds=1)


async def test_a_renewal_extends_the_lease_by_its_own_length(env: DriverEnv) -> None:
    worker = await env.register(lease_ms=10_000)
    await env.advance(8 * SECOND)
    assert await env.renew(worker) == Renewal(is_held=True)
    (view,) = await env.driver.workers()
    assert (view.lease_until, view.heartbeat_age_ms) == (env.now() + 10 * SECOND, 0)
    await env.advance(9 * SECOND)
    assert (await env.renew(worker)).is_held


async def test_a_renewed_claim_is_never_reaped(env: DriverEnv) -> None:
    worker = await env.register()
    held = await env.running(worker)
    for _ in range(5):
        await env.advance(LEASE - SECOND)
        assert await env.renew(worker, (held.token,)) == Renewal(is_held=True)
        assert await env.driver.reap() == ()
    await env.close_attempt(held.token, Completed())


async def test_a_lease_that_has_passed_is_never_renewed_reaped_or_not(env: DriverEnv) -> None:
    worker = await env.register()
    await env.advance(LEASE)
    assert await env.renew(worker) == Renewal(is_held=False)
    await env.driver.reap()
    assert await env.renew(worker) == Renewal(is_held=False)
    assert await env.claim(worker) == ()


async def test_a_refused_renewal_still_says_what_is_gone(env: DriverEnv) -> None:
    worker = await env.register()
    await env.driver.enqueue_many([new_job(), new_job()])
    taken, left = [held.token for held in await env.claim(worker)]
    await env.driver.cancel(taken.job_id, reason="stop")
    await env.advance(LEASE)
    gone = (Revocation(token=taken, by=SettleAnswer.CANCELLED),)
    assert await env.renew(worker, (taken, left)) == Renewal(is_held=False, revoked=gone)


async def test_a_closed_or_unknown_worker_is_not_renewed(env: DriverEnv) -> None:
    worker = await env.register()
    await env.driver.close_worker(worker)
    assert await env.renew(worker) == Renewal(is_held=False)
    assert await env.renew(WorkerId(worker + 1000)) == Renewal(is_held=False)


async def test_a_renewal_names_the_revoked_claims_and_what_took_them(env: DriverEnv) -> None:
    worker = await env.register()
    await env.driver.enqueue_many([new_job() for _ in range(5)])
    kept, cancelled, deleted, settled, released = [held.token for held in await env.claim(worker)]
    await env.driver.cancel(deleted.job_id, reason="stop")
    await env.advance(10 * SECOND)
    await env.driver.purge(PurgeQuery(state=State.CANCELLED, older_than=5 * SECOND))
    await env.driver.cancel(cancelled.job_id, reason="stop")
    await env.close_attempt(settled, Completed())
    await env.driver.release((released,), cause="test")
    renewal = await env.renew(worker, (kept, cancelled, deleted, settled, released))
    assert renewal.is_held
    assert set(renewal.revoked) == {
        Revocation(token=cancelled, by=SettleAnswer.CANCELLED),
        Revocation(token=deleted, by=SettleAnswer.DELETED),
        Revocation(token=settled, by=SettleAnswer.REAPED),
        Revocation(token=released, by=SettleAnswer.REAPED),
    }


async def test_a_claim_that_came_back_as_another_is_revoked(env: DriverEnv) -> None:
    worker = await env.register()
    old = (await env.running(worker)).token
    await env.driver.release((old,), cause="test")
    new = (await env.claim_one(worker)).token
    renewal = await env.renew(worker, (old, new))
    assert renewal.revoked == (Revocation(token=old, by=SettleAnswer.REAPED),)


async def test_a_claim_of_another_worker_is_none_of_its_own(env: DriverEnv) -> None:
    worker, other = await env.register(), await env.register()
    token = (await env.running(worker)).token
    stolen = with_token(token, worker_id=other)
    assert (await env.renew(other, (stolen,))).revoked == (Revocation(token=stolen, by=SettleAnswer.REAPED),)
    assert (await env.renew(worker, (token,))).revoked == ()


async def test_the_heartbeat_lives_on_a_thread_and_a_loop_of_its_own(env: DriverEnv) -> None:
    worker = await env.register()
    held = await env.running(worker)
    await env.advance(LEASE - SECOND)

    async def beat() -> tuple[Renewal, int]:
        async with env.driver.open_heartbeat() as heartbeat:
            renewal = await heartbeat.renew(worker, (held.token,))
            return renewal, await heartbeat.abandon(worker, (held.token,), LEASE)

    assert await asyncio.to_thread(asyncio.run, beat()) == (Renewal(is_held=True), 1)
    await env.advance(LEASE - SECOND)
    await env.close_attempt(held.token, Completed())


# --- abandon


async def test_abandoned_claims_are_taken_over_as_interrupted(env: DriverEnv) -> None:
    worker = await env.register()
    held = await env.running(worker)
    assert await env.abandon(worker, (held.token,), 3 * SECOND) == 1
    assert await env.driver.reap() == ()
    await env.advance(4 * SECOND)
    (reaped,) = await env.driver.reap()
    assert (reaped.job_id, reaped.outcome, reaped.is_dead) == (held.token.job_id, OutcomeKind.INTERRUPTED, False)
    assert (reaped.cause, reaped.attempt, reaped.lasted) == ("abandoned", 1, 4 * SECOND)
    view = await env.describe(held.token.job_id)
    assert (view.state, view.counters.attempt, view.counters.crashes) == (State.READY, 0, 0)
    assert view.counters.interrupts == 1
    (row,) = await env.ledger(held.token.job_id)
    assert (row.outcome, row.cause, row.counted) == (OutcomeKind.INTERRUPTED, "abandoned", False)


async def test_abandoning_lets_the_lease_end_early(env: DriverEnv) -> None:
    worker = await env.register()
    held = await env.running(worker)
    await env.abandon(worker, (held.token,), 3 * SECOND)
    await env.advance(2 * SECOND)
    await env.close_attempt(held.token, Interrupted(cause="drain"))
    await env.advance(SECOND)
    assert await env.renew(worker) == Renewal(is_held=False)


async def test_abandoning_sets_the_end_of_the_lease_even_if_that_is_later(env: DriverEnv) -> None:
    worker = await env.register(lease_ms=10_000)
    held = await env.running(worker)
    await env.advance(8 * SECOND)
    await env.abandon(worker, (held.token,), 5 * SECOND)
    (view,) = await env.driver.workers()
    assert view.lease_until == env.now() + 5 * SECOND


async def test_claims_that_a_drained_worker_does_not_know_of_are_no_crashes(env: DriverEnv) -> None:
    """A reply that never reached a blocked loop: the worker has had its word, and the job is none the worse for it."""
    worker = await env.register()
    await env.driver.enqueue_many([new_job(), new_job()])
    abandoned, other = [held.token for held in await env.claim(worker)]
    await env.abandon(worker, (abandoned,), SECOND)
    await env.advance(2 * SECOND)
    causes = {reaped.job_id: (reaped.outcome, reaped.cause) for reaped in await env.driver.reap()}
    assert causes == {
        abandoned.job_id: (OutcomeKind.INTERRUPTED, "abandoned"),
        other.job_id: (OutcomeKind.INTERRUPTED, "worker_closed"),
    }
    assert (await env.describe(other.job_id)).counters.crashes == 0


async def test_claims_of_a_worker_killed_in_mid_drain_crash(env: DriverEnv) -> None:
    worker = await env.register()
    held = await env.running(worker)
    await env.driver.show_worker(worker, wakeup=None, drain=DrainShown(phase="inflight", reason="SIGTERM"))
    await env.vanish()
    (reaped,) = await env.driver.reap()
    assert (reaped.job_id, reaped.outcome) == (held.token.job_id, OutcomeKind.CRASHED)


async def test_an_abandoned_drain_shows_its_last_phase_whatever_is_shown_after(env: DriverEnv) -> None:
    worker = await env.register()
    await env.abandon(worker, ())
    assert (await env.driver.workers())[0].drain_phase == "close"
    await env.driver.show_worker(worker, wakeup=None, drain=DrainShown(phase="inflight", reason="SIGTERM"))
    (view,) = await env.driver.workers()
    assert (view.drain_phase, view.drain_reason) == ("close", "SIGTERM")


async def test_abandoning_is_fenced(env: DriverEnv) -> None:
    worker, other = await env.register(), await env.register()
    token = (await env.running(worker)).token
    wrong = (
        *(with_token(token, fence=token.fence + 1), with_token(token, claim_no=token.claim_no + 1)),
        with_token(token, job_id=await env.enqueue()),
    )
    assert await env.abandon(worker, (*wrong, with_token(token, worker_id=other))) == 0
    assert await env.abandon(other, (token, with_token(token, worker_id=other))) == 0
    await env.advance(LEASE)
    assert await env.abandon(worker, (token,)) == 0
    await env.vanish()
    (reaped,) = await env.driver.reap()
    assert reaped.cause == "worker_closed", "its claim was never marked"
