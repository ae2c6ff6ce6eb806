from __future__ import annotations

import pytest

from app.domain.event import Emitted, EventQuery, EventView
from app.domain.job import JobId
from app.domain.state import State
from app.domain.step import StepKind, StepView
from tests.conformance.runs import (
    EVENT,
    HOUR,
    KEY,
    MINUTE,
    SECOND,
    a_sleep,
    an_event,
    at,
    emit,
    enlist,
    history,
    known,
    new_event,
    order,
    state_of,
    suspend,
    suspended,
    the_step,
    waits,
)
from tests.support.drivers import DriverEnv


async def payloads(env: DriverEnv, job_id: JobId) -> dict[str, str | None]:
    """Give what each recorded step holds."""
    return {step.name: step.value for step in (await history(env, job_id)).steps}


# --- emit ends waits


async def test_an_event_ends_the_wait_for_it(env: DriverEnv) -> None:
    began = env.now()
    worker = await enlist(env, code_version="2.1.0")
    held = await suspended(env, an_event("approval", 2, place=at(2, "1.0")), worker=worker)
    await env.advance(MINUTE)
    event = new_event('{"by":  "\u6f22", "n": 1.5e300}')
    assert await env.driver.emit(event) == Emitted(id=event.id, matched=1)
    view = await env.describe(held.token.job_id)
    assert (view.state, view.state_reason, view.waiting_on) == (State.READY, None, ())
    step = await the_step(env, held.token.job_id)
    assert step == StepView(
        seq=step.seq,
        name="approval",
        kind=StepKind.EVENT,
        place=at(2, "1.0"),
        value='{"by":  "\u6f22", "n": 1.5e300}',
        claim_no=1,
        code_version="2.1.0",
        started_at=began,
        ended_at=env.now(),
        has_event=True,
        child_id=None,
    )
    assert await waits(env, held.token.job_id) == []


@pytest.mark.parametrize(
    "other",
    [{"name": "order.refused"}, {"key": "8"}, {"tenant": "acme"}, {"key": ""}, {"name": KEY, "key": EVENT}],
    ids=repr,
)
async def test_name_key_and_tenant_must_all_be_the_same(env: DriverEnv, other: dict[str, str]) -> None:
    held = await suspended(env, an_event())
    assert (await emit(env, **other)).matched == 0
    assert await state_of(env, held.token.job_id) is State.SUSPENDED
    assert await waits(env, held.token.job_id) == ["approval"]


async def test_a_tenant_s_run_hears_its_tenant_s_events(env: DriverEnv) -> None:
    held = await suspended(env, an_event(), tenant="acme")
    assert (await emit(env)).matched == 0
    assert (await emit(env, tenant="acme")).matched == 1
    assert await state_of(env, held.token.job_id) is State.READY


async def test_an_event_is_for_every_run_that_waits(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = [await suspended(env, an_event(), worker=worker) for _ in range(3)]
    new = await env.enqueue()
    assert (await emit(env, "1")).matched == 3
    for one in held:
        assert await payloads(env, one.token.job_id) == {"approval": "1"}
    claimed = await order(env, worker)
    assert set(claimed[:3]) == {one.token.job_id for one in held}
    assert claimed[3] == new
    assert len(await env.driver.events(EventQuery())) == 1


async def test_an_event_nobody_waits_for_is_kept(env: DriverEnv) -> None:
    assert (await emit(env)).matched == 0
    (event,) = await env.driver.events(EventQuery())
    assert (event.name, event.key, event.matched) == (EVENT, KEY, 0)


async def test_an_emit_is_told_once(env: DriverEnv) -> None:
    worker = await enlist(env)
    first = await suspended(env, an_event(), worker=worker)
    event = new_event()
    assert await env.driver.emit(event) == Emitted(id=event.id, matched=1)
    later = await suspended_later(env, first.token.job_id)
    assert await env.driver.emit(event) == Emitted(id=event.id, matched=1, is_repeated=True)
    assert await state_of(env, later) is State.SUSPENDED
    assert len(await env.driver.events(EventQuery())) == 1
    assert (await emit(env)).matched == 1


async def suspended_later(env: DriverEnv, ready: JobId) -> JobId:
    """Suspend another run over the same event, which it is not to find: it was emitted before."""
    worker = await enlist(env)
    await env.advance(SECOND)
    other = await env.enqueue()
    held = {one.token.job_id: one for one in await env.claim(worker)}
    assert held.keys() == {ready, other}
    assert await suspend(env, held[other], an_event()) is State.SUSPENDED
    return other


async def test_a_wait_of_a_job_that_runs_only_has_its_step_recorded(env: DriverEnv) -> None:
    worker = await enlist(env)
    await suspended(env, an_event(), a_sleep(number=1, delay=MINUTE), worker=worker)
    await env.advance(MINUTE)
    await env.driver.wake()
    held = await env.claim_one(worker)
    assert (await emit(env, "1")).matched == 1
    assert await state_of(env, held.token.job_id) is State.RUNNING
    recorded = (await history(env, held.token.job_id)).steps
    assert [(step.name, step.value, step.claim_no) for step in recorded] == [("nap", None, 1), ("approval", "1", 2)]
    assert await suspend(env, held, known(an_event())) is State.READY


async def test_a_wait_of_a_dead_job_only_has_its_step_recorded(env: DriverEnv) -> None:
    worker = await enlist(env)
    held = await suspended(env, an_event(), deadline=HOUR, worker=worker)
    await env.advance(HOUR)
    await env.driver.expire()
    assert (await emit(env, "1")).matched == 1
    assert await state_of(env, held.token.job_id) is State.DEAD
    assert await payloads(env, held.token.job_id) == {"approval": "1"}
    assert await waits(env, held.token.job_id) == []


# --- readers


async def test_events_are_read_newest_first(env: DriverEnv) -> None:
    began = env.now()
    await suspended(env, an_event())
    first = new_event("1", emitted_by="ann")
    await env.driver.emit(first)
    await env.advance(MINUTE)
    second = new_event("2", name="other", key="")
    await env.driver.emit(second)
    newest, oldest = await env.driver.events(EventQuery())
    assert newest.seq > oldest.seq
    assert oldest == EventView(
        id=first.id,
        seq=oldest.seq,
        tenant="default",
        name=EVENT,
        key=KEY,
        payload="1",
        emitted_at=began,
        emitted_by="ann",
        matched=1,
    )
    assert newest == EventView(
        id=second.id,
        seq=newest.seq,
        tenant="default",
        name="other",
        key="",
        payload="2",
        emitted_at=began + MINUTE,
        emitted_by=None,
        matched=0,
    )


async def test_events_are_filtered(env: DriverEnv) -> None:
    await emit(env, "1")
    await emit(env, "2", key="8")
    await emit(env, "3", name="other")
    await emit(env, "4", tenant="acme")

    expected = {
        EventQuery(): ["4", "3", "2", "1"],
        EventQuery(tenant="acme"): ["4"],
        EventQuery(name=EVENT): ["4", "2", "1"],
        EventQuery(key="8"): ["2"],
        EventQuery(tenant="default", name=EVENT, key=KEY): ["1"],
        EventQuery(tenant="nobody"): [],
    }
    for query, payloads_found in expected.items():
        assert [event.payload for event in await env.driver.events(query)] == payloads_found


async def test_a_page_of_events_goes_on_where_the_last_ended(env: DriverEnv) -> None:
    for number in range(5):
        await emit(env, str(number))
    seen: list[str] = []
    before: int | None = None
    while page := await env.driver.events(EventQuery(limit=2, before=before)):
        assert len(page) <= 2
        seen += [event.payload for event in page]
        before = page[-1].seq
    assert seen == ["4", "3", "2", "1", "0"]
