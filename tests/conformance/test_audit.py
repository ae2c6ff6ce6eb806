from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from app.domain.audit import SHARED, Action, AuditEntry, AuditQuery, Target
from app.domain.drain import DrainAsk
from app.domain.errors import JobDuplicate, JobNotFound, JobStateConflict, NotFound
from app.domain.outcome import Held
from app.domain.state import State
from app.domain.step import RetryMode
from tests.conformance.runs import HOUR, a_call, a_child, enlist, record, suspend
from tests.support.audit import an_entry, details_of, outcomes, rows_of
from tests.support.drivers import DriverEnv, new_id, new_job

Act = Callable[[DriverEnv, AuditEntry], Awaitable[object]]


async def test_a_cancel_leaves_what_it_found(env: DriverEnv) -> None:
    job_id = await env.enqueue(tenant="acme")
    await env.driver.cancel(job_id, reason="stop", audit=an_entry(Action.JOB_CANCEL, job_id))
    await env.driver.cancel(job_id, reason="stop", audit=an_entry(Action.JOB_CANCEL, job_id, actor="bob"))
    rows = await rows_of(env.driver, job_id)
    assert [(row.actor, row.outcome) for row in rows] == [
        ("bob", "already_finished"),
        ("alice", "cancelled_before_start"),
    ]
    assert {(row.tenant, row.target_kind, row.target, row.at) for row in rows} == {
        ("acme", "job", str(job_id), env.now())
    }


async def test_a_cancel_of_a_family_leaves_one_row(env: DriverEnv) -> None:
    parent = await env.running(await enlist(env))
    child = a_child(parent)
    assert await suspend(env, parent, a_call(child)) is State.SUSPENDED
    await env.driver.cancel(parent.token.job_id, reason="stop", audit=an_entry(Action.JOB_CANCEL, parent.token.job_id))
    assert await outcomes(env.driver, parent.token.job_id) == [("job.cancel", "cancelled_while_waiting")]
    assert await rows_of(env.driver, child.id) == []


async def test_an_action_that_is_repeated_leaves_one_row(env: DriverEnv) -> None:
    job_id = await env.enqueue()
    audit = an_entry(Action.JOB_CANCEL, job_id)
    for _ in range(2):
        await env.driver.cancel(job_id, reason="stop", audit=audit)
    assert await outcomes(env.driver, job_id) == [("job.cancel", "cancelled_before_start")]


async def test_without_an_entry_nothing_is_kept(env: DriverEnv) -> None:
    job_id = await env.enqueue()
    await env.driver.cancel(job_id, reason="stop")
    await env.driver.retry(job_id)
    assert (await env.driver.audit(AuditQuery())).items == ()


@pytest.mark.parametrize("mode", list(RetryMode))
async def test_a_retry_leaves_a_row_however_its_run_goes_on(env: DriverEnv, mode: RetryMode) -> None:
    job_id = await env.enqueue()
    await env.driver.cancel(job_id, reason="stop")
    await env.driver.retry(job_id, mode=mode, audit=an_entry(Action.JOB_RETRY, job_id))
    with pytest.raises(JobStateConflict):
        await env.driver.retry(job_id, mode=mode, audit=an_entry(Action.JOB_RETRY, job_id))
    assert await outcomes(env.driver, job_id) == [("job.retry", "done")]


async def test_a_retry_that_is_refused_its_key_leaves_none(env: DriverEnv) -> None:
    job_id = await env.enqueue(key="k")
    await env.driver.cancel(job_id, reason="stop")
    await env.enqueue(key="k")
    with pytest.raises(JobDuplicate):
        await env.driver.retry(job_id, audit=an_entry(Action.JOB_RETRY, job_id))
    assert await rows_of(env.driver, job_id) == []


async def test_a_release_and_a_fork_leave_theirs(env: DriverEnv) -> None:
    held = await env.running()
    await record(env, held.token, "load")
    await env.close_attempt(held.token, Held(reason="does not fit"))
    job_id = held.token.job_id
    await env.driver.fork(job_id, new_id=new_id(), audit=an_entry(Action.JOB_FORK, job_id))
    with pytest.raises(NotFound):
        await env.driver.fork(job_id, new_id=new_id(), from_step="no", audit=an_entry(Action.JOB_FORK, job_id))
    await env.driver.release_held(job_id, audit=an_entry(Action.JOB_RELEASE, job_id))
    with pytest.raises(JobStateConflict):
        await env.driver.release_held(job_id, audit=an_entry(Action.JOB_RELEASE, job_id))
    assert await outcomes(env.driver, job_id) == [("job.release", "done"), ("job.fork", "done")]


async def test_a_job_that_is_placed_comes_with_its_row_or_not_at_all(env: DriverEnv) -> None:
    first = await env.enqueue()
    audit = an_entry(Action.JOB_DUPLICATE, first)
    job = new_job(key="k", on_conflict="error", parent_id=first)
    for _ in range(2):  # its caller did not hear the first answer
        answer = await env.driver.place(job, audit=audit)
        assert (answer.id, answer.deduped) == (job.id, False)
    with pytest.raises(JobDuplicate):
        await env.driver.place(replace(job, id=new_id()), audit=an_entry(Action.JOB_DUPLICATE, first))
    assert await outcomes(env.driver, first) == [("job.duplicate", "done")]
    assert (await env.describe(job.id)).parent_id == first


async def test_pauses_of_queues_leave_theirs_and_say_when_nothing_changed(env: DriverEnv) -> None:
    def entry(action: Action) -> AuditEntry:
        return an_entry(action, "mail", target_kind=Target.QUEUE)

    for _ in range(2):
        await env.driver.pause_queue("mail", by="alice", audit=entry(Action.QUEUE_PAUSE))
    for _ in range(2):
        await env.driver.resume_queue("mail", audit=entry(Action.QUEUE_RESUME))
    rows = (await env.driver.audit(AuditQuery(target="mail", target_kind="queue"))).items
    assert [(row.action, row.outcome, row.tenant) for row in rows] == [
        ("queue.resume", "unchanged", None),
        ("queue.resume", "done", None),
        ("queue.pause", "unchanged", None),
        ("queue.pause", "done", None),
    ]


async def test_a_worker_that_is_asked_to_drain_leaves_its_row(env: DriverEnv) -> None:
    worker = await env.register()
    audit = an_entry(Action.WORKER_DRAIN, worker, target_kind=Target.WORKER)
    assert await env.driver.ask_drain(worker, by="alice", audit=audit) is DrainAsk.ASKED
    unknown = an_entry(Action.WORKER_DRAIN, 2**31 - 1, target_kind=Target.WORKER)
    assert await env.driver.ask_drain(type(worker)(2**31 - 1), by="alice", audit=unknown) is DrainAsk.UNKNOWN
    rows = (await env.driver.audit(AuditQuery(target_kind="worker"))).items
    assert [(row.target, row.outcome) for row in rows] == [(str(worker), "done")]


async def test_an_action_on_nothing_leaves_nothing(env: DriverEnv) -> None:
    absent = new_id()
    driver = env.driver
    for verb in (
        driver.cancel(absent, reason="stop", audit=an_entry(Action.JOB_CANCEL, absent)),
        driver.retry(absent, audit=an_entry(Action.JOB_RETRY, absent)),
        driver.release_held(absent, audit=an_entry(Action.JOB_RELEASE, absent)),
        driver.delete(absent, audit=an_entry(Action.JOB_DELETE, absent)),
    ):
        with pytest.raises(JobNotFound):
            await verb
    assert (await driver.audit(AuditQuery())).items == ()


# --- the rows themselves


async def _kept(env: DriverEnv, **fields: Any) -> AuditEntry:
    entry = an_entry(fields.pop("action", Action.QUEUE_PAUSE), fields.pop("target", "mail"), **fields)
    await env.driver.keep_entry(entry)
    return entry


async def test_an_entry_is_kept_as_it_is_and_once(env: DriverEnv) -> None:
    entry = await _kept(
        env, target_kind=Target.FILTER, target="state:dead name:'x'", tenant="acme", details={"n": 1, "é": [None, 1.5]}
    )
    await env.driver.keep_entry(entry)
    (row,) = (await env.driver.audit(AuditQuery())).items
    assert (row.id, row.actor, row.tenant, row.action) == (entry.id, "alice", "acme", "queue.pause")
    assert (row.target_kind, row.target, row.reason, row.outcome) == ("filter", entry.target, "a look", "done")
    assert details_of(row) == {"n": 1, "é": [None, 1.5]}


async def test_of_details_that_are_too_many_their_size_is_kept(env: DriverEnv) -> None:
    await _kept(env, target_kind=Target.QUEUE, details={"text": "x" * 20_000})
    (row,) = (await env.driver.audit(AuditQuery())).items
    assert list(details_of(row)) == ["omitted_bytes"]


async def test_pages_follow_each_other_newest_first(env: DriverEnv) -> None:
    entries = [await _kept(env, target_kind=Target.QUEUE, target=f"q{number}") for number in range(5)]
    first = await env.driver.audit(AuditQuery(limit=2))
    second = await env.driver.audit(AuditQuery(limit=2, before=first.next_before))
    third = await env.driver.audit(AuditQuery(limit=2, before=second.next_before))
    found = [row.id for page in (first, second, third) for row in page.items]
    assert found == [entry.id for entry in reversed(entries)]
    assert third.next_before is None


async def test_every_filter_narrows(env: DriverEnv) -> None:
    await _kept(env, target_kind=Target.QUEUE)
    began = env.now()
    await env.advance(HOUR)
    bobs = await _kept(env, target_kind=Target.QUEUE, actor="bob", action=Action.QUEUE_RESUME, target="sms")
    schedules = await _kept(env, target_kind=Target.SCHEDULE, action=Action.SCHEDULE_FIRE, target="nightly")
    filters: list[tuple[dict[str, Any], list[AuditEntry]]] = [
        ({"actor": "bob"}, [bobs]),
        ({"action": "schedule.fire"}, [schedules]),
        ({"target_kind": "schedule"}, [schedules]),
        ({"target": "sms"}, [bobs]),
        ({"target": "sms", "actor": "alice"}, []),
        ({"since": began + timedelta(seconds=1)}, [schedules, bobs]),
        ({"since": env.now()}, [schedules, bobs]),
        ({"since": env.now(), "until": env.now()}, []),
    ]
    for fields, expected in filters:
        page = await env.driver.audit(AuditQuery(**fields))
        assert [row.id for row in page.items] == [entry.id for entry in expected], fields
    until = await env.driver.audit(AuditQuery(until=env.now()))
    assert len(until.items) == 1


@pytest.mark.parametrize("kind", list(Target))
async def test_a_tenant_sees_its_own_rows_and_those_about_what_is_nobodys_alone(env: DriverEnv, kind: Target) -> None:
    target = new_id() if kind is Target.JOB else "mail"
    nobodys = await _kept(env, target_kind=kind, target=target)
    own = await _kept(env, target_kind=kind, target=target, tenant="acme")
    await _kept(env, target_kind=kind, target=target, tenant="other")
    page = await env.driver.audit(AuditQuery(tenant="acme"))
    assert [row.id for row in page.items] == [own.id, *([nobodys.id] if kind in SHARED else [])]
    assert len((await env.driver.audit(AuditQuery())).items) == 3
