from __future__ import annotations

from app.domain.outcome import Completed
from app.drivers.protocol import Wake
from tests.conformance.ears import Ears
from tests.conformance.runs import (
    HOUR,
    a_call,
    a_child,
    a_sleep,
    an_event,
    called,
    die,
    emit,
    enlist,
    settle,
    suspend,
    suspended,
)
from tests.conformance.versions import handed_back, held_for, publish
from tests.support.drivers import DriverEnv


async def test_whatever_wakes_a_run_wakes_who_claims(env: DriverEnv) -> None:
    ears = Ears()
    worker = await enlist(env)
    async with env.driver.listen(ears, news=frozenset({Wake.READY})):
        await ears.wait_for(Wake.LISTENING)
        await suspended(env, a_sleep(), worker=worker)
        await ears.wait_for(Wake.READY)  # its enqueue
        await env.advance(HOUR)
        await env.driver.wake()
        await ears.wait_for(Wake.READY)
        held = await env.claim_one(worker)
        await suspend(env, held, an_event("e", 1))
        await emit(env)
        await ears.wait_for(Wake.READY)
        held = await env.claim_one(worker)
        await emit(env)
        await suspend(env, held, an_event("f", 2))
        await ears.wait_for(Wake.READY)


async def test_a_child_wakes_who_claims_when_it_begins_and_when_it_ends(env: DriverEnv) -> None:
    ears = Ears()
    worker = await enlist(env)
    parents = [await called(env, worker) for _ in range(2)]
    async with env.driver.listen(ears, news=frozenset({Wake.READY})):
        await ears.wait_for(Wake.LISTENING)
        await settle(env, parents[0][1], Completed())
        await ears.wait_for(Wake.READY)
        await die(env, parents[1][1])
        await ears.wait_for(Wake.READY)
        held = (await env.claim(worker))[0]
        await suspend(env, held, a_call(a_child(held), "second", 1))
        await ears.wait_for(Wake.READY)


async def test_a_suspension_with_an_end_wakes_who_watches_the_time(env: DriverEnv) -> None:
    ears = Ears()
    worker = await enlist(env)
    async with env.driver.listen(ears, news=frozenset({Wake.DELAYED})):
        await ears.wait_for(Wake.LISTENING)
        await suspended(env, a_sleep(), worker=worker)
        await ears.wait_for(Wake.DELAYED)
        await suspended(env, an_event(delay=HOUR), worker=worker)
        await ears.wait_for(Wake.DELAYED)


async def test_a_cancel_tells_the_workers_of_the_children(env: DriverEnv) -> None:
    ears = Ears()
    parent, _ = await called(env)
    async with env.driver.listen(ears, news=frozenset({Wake.REVOKED})):
        await ears.wait_for(Wake.LISTENING)
        await env.driver.cancel(parent.token.job_id, reason="stop")
        await ears.wait_for(Wake.REVOKED)


async def test_work_for_other_code_wakes_who_claims(env: DriverEnv) -> None:
    ears = Ears()
    async with env.driver.listen(ears, news=frozenset({Wake.READY})):
        await ears.wait_for(Wake.LISTENING)
        await handed_back(env)
        await ears.wait_for(Wake.READY)
        await env.claim(await enlist(env, code_version="old"))
        job_id, _ = await held_for(env, "gone")
        ears.heard.clear()
        await enlist(env, code_version="gone")
        await publish(env, "gone")
        assert await env.driver.release_due() == 1
        await ears.wait_for(Wake.READY)
        await env.driver.cancel(job_id, reason="stop")
        job_id, _ = await held_for(env, None)
        ears.heard.clear()
        await env.driver.release_held(job_id)
        await ears.wait_for(Wake.READY)
