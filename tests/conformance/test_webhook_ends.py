"""Ends of jobs that others bring about, told like any other: in bulk, with a parent, for what no code takes."""

from __future__ import annotations

from datetime import timedelta

from app.domain.audit import Action, AuditEntry, Target
from app.domain.bulk import BulkAction
from app.domain.job import JobId, LimitKey
from app.domain.outcome import HAND_BACK, Held, SettleAnswer, Settlement, Suspended
from app.domain.state import State
from app.domain.step import MAIN_BRANCH, NewWait, Place, StepKind
from app.domain.webhook import Callback, Delivery, WebhookId
from app.drivers.bulk import bulk_of
from app.outbox.passes import Passes
from tests.conformance.test_webhooks import a_webhook, store_of
from tests.conformance.versions import fleet
from tests.support.bulk import a_bulk
from tests.support.drivers import DriverEnv, new_id, new_job
from tests.support.outbox import BATCH, Outbox

WEBHOOK = a_webhook()
ASKED = Callback(webhook=WEBHOOK.id).text()


async def told(env: DriverEnv) -> dict[JobId, Delivery]:
    found = (await store_of(env).deliveries(WebhookId(WEBHOOK.id))).items
    assert len({each.ended.job_id for each in found}) == len(found)
    return {each.ended.job_id: each for each in found}


async def test_a_bulk_cancel_tells_of_every_job(env: DriverEnv) -> None:
    asked = [await env.enqueue(callback=ASKED, delay=timedelta(hours=1)) for _ in range(3)]
    await env.enqueue(delay=timedelta(hours=1))
    store = bulk_of(env.driver)
    assert store is not None
    await store.make(a_bulk(BulkAction.CANCEL))
    while (step := await store.step()) is not None and step.view.ended_at is None:
        pass
    found = await told(env)
    assert found.keys() == set(asked)
    assert {each.ended.state for each in found.values()} == {State.CANCELLED}


async def test_a_child_that_is_cancelled_with_its_parent_is_told_of(env: DriverEnv) -> None:
    held = await env.running(callback=ASKED)
    child = new_job(parent_id=held.token.job_id, callback=ASKED)
    wait = NewWait(name="call", kind=StepKind.CALL, place=Place(MAIN_BRANCH, 0), child=child)
    await env.close_attempt(held.token, Suspended(waits=(wait,)))
    audit = AuditEntry(
        id=new_id(),
        actor="ada",
        action=Action.JOB_CANCEL,
        target_kind=Target.JOB,
        target=str(held.token.job_id),
    )
    await env.driver.cancel(held.token.job_id, reason="stop", audit=audit)
    found = await told(env)
    assert found.keys() == {held.token.job_id, child.id}
    assert found[child.id].ended.reason == "parent cancelled"


async def test_a_payload_that_no_code_takes_is_told_as_dead(env: DriverEnv) -> None:
    held = await env.running(callback=ASKED)
    outcome = Held(reason="does not fit", or_dead=True)
    (answer,) = await env.driver.settle([Settlement(held.token, outcome)])
    assert answer is SettleAnswer.SETTLED
    found = (await told(env))[held.token.job_id].ended
    assert (found.state, found.reason, found.attempt) == (State.DEAD, "terminal", 1)


async def test_a_payload_that_newer_code_never_came_for_is_told_as_dead(env: DriverEnv) -> None:
    old, _ = await fleet(env)
    held = await env.running(old, callback=ASKED)
    (answer,) = await env.driver.settle([Settlement(held.token, Held(reason="does not fit", or_dead=True))])
    assert answer is SettleAnswer.SETTLED
    assert (await env.describe(held.token.job_id)).state is State.READY
    await env.advance(HAND_BACK + timedelta(seconds=1))
    await env.driver.release_due()
    found = (await told(env))[held.token.job_id].ended
    assert (found.state, found.reason) == (State.DEAD, "terminal")


async def test_a_job_that_was_staged_is_told_of(outbox: Outbox, passes: Passes) -> None:
    env = outbox.env
    staged = await outbox.staged(callback=ASKED)
    assert await told(env) == {}
    await passes.once(BATCH)
    await env.driver.cancel(staged, reason="stop")
    assert (await told(env)).keys() == {staged}


async def test_a_limited_job_is_told_of(env: DriverEnv) -> None:
    job_id = await env.enqueue(callback=ASKED, limits=(LimitKey("limit", "berlin"),))
    await env.driver.cancel(job_id, reason="stop")
    assert (await told(env)).keys() == {job_id}


async def test_a_fork_is_nobodys_to_be_told_of(env: DriverEnv) -> None:
    job_id = await env.enqueue(callback=ASKED)
    await env.driver.cancel(job_id, reason="stop")
    fork = JobId(new_id())
    await env.driver.fork(job_id, new_id=fork)
    await env.driver.cancel(fork, reason="stop")
    assert (await told(env)).keys() == {job_id}
