"""Encrypted payloads: what lies in the store, who can read it, and what is said to who cannot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from app.domain.errors import IdempotencyMismatch, PayloadUnreadable
from app.domain.event import EventQuery
from app.domain.job import ClaimedJob, JobId
from app.domain.outcome import Completed, ErrorInfo, Retried
from app.domain.redaction import redacted
from app.domain.request_claim import KeptAnswer, NewRequest, RequestClaim, RequestId
from app.domain.sealed import Unreadable, is_sealed, readable, why_unreadable
from app.domain.step import NewNotes
from app.drivers.outbox import outbox_of
from app.drivers.protocol import JobDriver
from app.drivers.reading import ListQuery
from app.drivers.sealing.aes import OVERHEAD, AesGcmCodec
from app.drivers.sealing.driver import sealing
from app.outbox.passes import DriverPasses, SharedPasses
from tests.conformance.runs import a_call, a_child, a_step, an_event, claim_child, emit, enlist, settle, suspend
from tests.support.drivers import DriverEnv, MemoryEnv, PostgresEnv, new_id, new_job
from tests.support.outbox import Outbox, new_relay

OLD, NEW, OTHER = (bytes([number]) * 32 for number in range(3))
CANARY = "CANARY-7"
VALUE = f'{{"card": "{CANARY}"}}'


def under(env: DriverEnv, *keys: bytes) -> JobDriver:
    """Give the store's driver under one with these keys; the tests' sentences are then about that one."""
    env.driver = sealing(env.below, AesGcmCodec(keys))
    return env.driver


async def everything(env: DriverEnv) -> str:
    """Give all that is stored, as text."""
    if isinstance(env, MemoryEnv):
        store = env.memory._store
        return "\n".join(str(vars(part)) for part in (store, store.runs)) + str(env.memory.outbox.__dict__)
    assert isinstance(env, PostgresEnv)
    async with env.engine.connect() as connection:
        tables = await connection.exec_driver_sql("select tablename from pg_tables where schemaname = 'outlast'")
        rows = [
            (await connection.exec_driver_sql(f"select t::text from outlast.{table} t")).scalars().all()
            for (table,) in tables.all()
        ]
    return str(rows)


async def put_payload(env: DriverEnv, job_id: JobId, payload: str) -> None:
    """Change what lies in the store, as somebody who may write to it can."""
    if isinstance(env, PostgresEnv):
        await env.execute(f"update outlast.job set payload = '{payload}' where id = '{job_id}'")
        return
    assert isinstance(env, MemoryEnv)
    envelopes = env.memory._store.envelopes
    envelopes[job_id] = replace(envelopes[job_id], job=replace(envelopes[job_id].job, payload=payload))


async def lying(env: DriverEnv, job_id: JobId) -> str:
    """Give a payload as it lies in the store."""
    view = await env.below.describe(job_id)
    assert view is not None
    assert view.payload is not None
    return view.payload


async def with_everything(env: DriverEnv) -> ClaimedJob:
    """Give a running job whose run has said and recorded all it can."""
    worker = await enlist(env)
    held = await env.running(worker, payload=VALUE)
    await env.driver.record_step(held.token, a_step("load", value=VALUE))
    await env.driver.note([NewNotes(token=held.token, lines=(f"line {CANARY}",), progress=(0.5, f"at {CANARY}"))])
    await emit(env, VALUE)
    await suspend(env, held, an_event(number=1))
    held = await env.claim_one(worker)
    child = replace(a_child(held), payload=VALUE)
    await suspend(env, held, a_call(child, number=2))
    called = await claim_child(env, worker, child.id)
    assert called.payload == VALUE
    await settle(env, called, Completed(result=VALUE))
    held = await env.claim_one(worker)
    error = ErrorInfo(type="Odd", message=f"bad {CANARY}", traceback=f"at line 1: {CANARY}")
    await settle(env, held, Retried(error=error, delay=timedelta(milliseconds=1)))
    await env.advance(timedelta(seconds=1))
    await env.driver.promote()
    return await env.claim_one(worker)


async def test_what_users_wrote_is_read_back_and_lies_nowhere(env: DriverEnv, outbox: Outbox) -> None:
    driver = under(env, NEW)
    held = await with_everything(env)
    job_id = held.token.job_id
    assert held.payload == VALUE
    view = await env.describe(job_id)
    assert (view.payload, view.progress and view.progress.message) == (VALUE, f"at {CANARY}")
    assert [step.value for step in (await driver.history(job_id, held.run_id)).steps] == [VALUE] * 3
    run = await driver.run(job_id)
    assert run is not None
    assert ([step.value for step in run.history.steps], run.lines[0].message) == ([VALUE] * 3, f"line {CANARY}")
    (attempt,) = [one for one in await driver.attempts(job_id) if one.error is not None]
    assert attempt.error == ErrorInfo(type="Odd", message=f"bad {CANARY}", traceback=f"at line 1: {CANARY}")
    (listed,) = [one for one in (await driver.list(ListQuery())).items if one.id == job_id]
    assert listed.error == attempt.error
    assert [event.payload for event in await driver.events(EventQuery())] == [VALUE]
    assert CANARY not in await everything(env)
    await settle(env, held, Completed(result=VALUE))
    assert (await env.describe(job_id)).result == VALUE
    assert CANARY not in await everything(env)


async def test_a_staged_row_is_sealed_and_a_relay_needs_no_key(env: DriverEnv, outbox: Outbox) -> None:
    under(env, NEW)
    staging = outbox_of(env.driver)
    assert staging is not None
    job = new_job(payload=VALUE)
    async with outbox.transaction() as transaction:
        await staging.stage(transaction, [job])
    assert CANARY not in await everything(env)
    assert (await SharedPasses(outbox.store).once(10)).published == 1
    assert is_sealed(await lying(env, job.id))
    assert (await env.describe(job.id)).payload == VALUE


async def test_a_relay_between_two_databases_seals_nothing_twice(env: DriverEnv, outbox: Outbox) -> None:
    under(env, NEW)
    staging = outbox_of(env.driver)
    assert staging is not None
    job = new_job(payload=VALUE)
    async with outbox.transaction() as transaction:
        await staging.stage(transaction, [job])
    assert (await DriverPasses(outbox.store, env.driver, new_relay()).once(10)).published == 1
    assert (await env.describe(job.id)).payload == VALUE


async def test_an_answer_that_is_kept_is_sealed(env: DriverEnv) -> None:
    driver = under(env, NEW)
    request = NewRequest(id=RequestId(uuid4()), holder=uuid4(), fingerprint=uuid4())
    claim = await driver.claim_request(request)
    assert isinstance(claim, RequestClaim)
    answer = KeptAnswer(status=201, headers={}, body=VALUE)
    await driver.answer_request(claim, answer)
    assert CANARY not in await everything(env)
    assert await driver.claim_request(request) == answer
    with pytest.raises(PayloadUnreadable):
        await under(env, OTHER).claim_request(request)


async def test_older_keys_open_and_the_newest_seals(env: DriverEnv) -> None:
    under(env, OLD)
    first = await env.enqueue(payload=VALUE)
    driver = under(env, NEW, OLD)
    second = (await driver.enqueue(new_job(payload=VALUE))).id
    assert [(await env.describe(one)).payload for one in (first, second)] == [VALUE, VALUE]
    under(env, NEW)
    assert isinstance((await env.describe(first)).payload, Unreadable)
    assert (await env.describe(second)).payload == VALUE


async def test_who_has_no_key_is_told_so_and_shows_no_payload(env: DriverEnv) -> None:
    under(env, OLD)
    job_id = await env.enqueue(payload=VALUE)
    under(env, OTHER)
    held = await env.claim_one(await env.register())
    why = why_unreadable(held.payload)
    assert why is not None
    assert "which this process does not have" in why.cause
    assert "OUTLAST_PAYLOAD_KEY_FILE" in why.fix
    for driver in (env.driver, env.below):  # with another key, and with none
        view = await driver.describe(job_id)
        assert view is not None
        shown = redacted(view.payload, ())
        assert shown is not None
        assert shown.startswith('"[PAYLOAD_UNREADABLE: ')
        with pytest.raises(PayloadUnreadable):
            readable(view.payload)


async def test_what_was_stored_before_stays_readable(env: DriverEnv) -> None:
    answer = await env.below.enqueue(new_job(payload=VALUE))
    under(env, NEW)
    assert (await env.describe(answer.id)).payload == VALUE
    assert (await env.claim_one(await env.register())).payload == VALUE


def swapped(texts: Sequence[str]) -> list[str]:
    return list(reversed(texts))


def changed(texts: Sequence[str]) -> list[str]:
    return [text[:80] + ("A" if text[80] != "A" else "B") + text[81:] for text in texts]


def cut(texts: Sequence[str]) -> list[str]:
    return [text[:42] for text in texts]


@pytest.mark.parametrize("tamper", [swapped, changed, cut])
async def test_what_was_changed_or_put_elsewhere_is_refused(env: DriverEnv, tamper: Callable[..., list[str]]) -> None:
    under(env, NEW)
    jobs = [await env.enqueue(payload=VALUE) for _ in range(2)]
    texts = tamper([await lying(env, job_id) for job_id in jobs])
    for job_id, text in zip(jobs, texts, strict=True):
        await put_payload(env, job_id, text)
    for job_id in jobs:
        why = why_unreadable((await env.describe(job_id)).payload)
        assert why is not None
        assert "restore the row from a backup" in why.fix


@pytest.mark.parametrize("size", [0, 1, 100, 4096])
async def test_the_stored_size_follows_from_the_plain_one(env: DriverEnv, size: int) -> None:
    under(env, NEW)
    job_id = await env.enqueue(payload=f'"{"x" * size}"')
    stored = await lying(env, job_id)
    assert len(stored) == 2 + 4 * -(-(size + 2 + OVERHEAD) // 3)


async def test_a_fork_has_the_texts_as_its_own(env: DriverEnv) -> None:
    driver = under(env, NEW)
    held = await with_everything(env)
    new = new_id()
    await driver.fork(held.token.job_id, new_id=new)
    view = await env.describe(new)
    assert view.payload == VALUE
    assert [step.value for step in (await driver.history(new, view.run_id)).steps] == [VALUE] * 3
    again = new_id()
    await driver.fork(new, new_id=again, from_step="call")
    assert [step.value for step in (await driver.history(again, (await env.describe(again)).run_id)).steps] == [
        VALUE
    ] * 2
    with pytest.raises(PayloadUnreadable):
        await under(env, OTHER).fork(new, new_id=(absent := new_id()))
    assert await env.below.describe(absent) is None


async def test_a_key_is_compared_by_the_plain_payload(env: DriverEnv) -> None:
    driver = under(env, NEW)
    jobs = [new_job(payload=VALUE, key="one", fingerprint=7) for _ in range(2)]
    answers = [await driver.enqueue(job) for job in jobs]
    assert [answer.deduped for answer in answers] == [False, True]
    with pytest.raises(IdempotencyMismatch):
        await driver.enqueue(new_job(payload="{}", key="one", fingerprint=8))
