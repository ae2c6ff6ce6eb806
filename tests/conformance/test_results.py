"""Results awaited from code: what was returned, why there is nothing, and where a staged id leads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from app.domain.errors import (
    DriverUnavailable,
    IdempotencyMismatch,
    JobFailed,
    JobNotFound,
    JobTimeout,
    OutlastError,
    RequestInvalid,
    ResultInvalid,
)
from app.domain.job import JobId
from app.domain.outcome import Completed, DeadLettered
from app.domain.state import DeadReason, State
from app.drivers.protocol import PurgeQuery
from app.jobs import Client, job, use_client
from tests.support.drivers import ERROR, NAME, QUEUE, DriverEnv, new_id
from tests.support.outbox import Outbox

SECOND = timedelta(seconds=1)
SOON = timedelta(milliseconds=30)
LONG = timedelta(seconds=20)


class Sent(BaseModel):
    number: int


@job(NAME, queue=QUEUE)
async def send(shop: str = "") -> Sent:
    return Sent(number=len(shop))


@job("another.type", queue=QUEUE)
async def other() -> int:
    return 1


@pytest.fixture(autouse=True)
def client(env: DriverEnv) -> Any:
    with use_client(Client(env.driver)) as client:
        yield client


async def finish(env: DriverEnv, result: str | None = '{"number":7}') -> JobId:
    """Claim the one job that is ready and end it as done."""
    claimed = await env.claim_one(await env.register())
    await env.close_attempt(claimed.token, Completed(result=result))
    return claimed.token.job_id


@asynccontextmanager
async def waits(work: Coroutine[Any, Any, Any]) -> AsyncIterator[asyncio.Task[Any]]:
    """Begin to wait, and go on once it has looked for the first time and the loop has had some turns."""
    task = asyncio.create_task(work)
    try:
        for _ in range(20):
            await asyncio.sleep(0.002)
        assert not task.done()
        yield task
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def code_of(work: Awaitable[Any], kind: type[OutlastError]) -> dict[str, object]:
    """Give the details of the error that a wait ends with."""
    with pytest.raises(kind) as found:
        await work
    assert found.value.fix
    return found.value.details


async def test_a_result_is_awaited_and_read_by_the_return_annotation(env: DriverEnv) -> None:
    answer = await send.enqueue({})
    async with waits(answer.result(timeout=LONG)) as waiting:
        assert await finish(env) == answer.id
        assert await waiting == Sent(number=7)
    assert await send.result(answer.id, timeout=timedelta()) == Sent(number=7)
    assert await send.result(answer) == await send.job(answer.id).result() == Sent(number=7)


async def test_a_job_that_failed_says_why(env: DriverEnv) -> None:
    answer = await send.enqueue({})
    claimed = await env.claim_one(await env.register())
    async with waits(answer.result(timeout=LONG)) as waiting:
        await env.close_attempt(claimed.token, DeadLettered(error=ERROR, reason=DeadReason.TERMINAL))
        details = await code_of(waiting, JobFailed)
    assert details == {
        "job_id": str(answer.id),
        "state": "dead",
        "reason": "terminal",
        "error": {"type": ERROR.type, "message": ERROR.message, "code": ERROR.code},
    }


async def test_a_job_that_is_cancelled_says_by_whom(env: DriverEnv) -> None:
    answer = await send.enqueue({})
    async with waits(answer.result(timeout=LONG)) as waiting:
        await env.driver.cancel(answer.id, reason="not wanted")
        details = await code_of(waiting, JobFailed)
    assert (details["state"], details["reason"], details["error"]) == ("cancelled", "not wanted", None)


async def test_a_job_that_is_not_in_time_goes_on(env: DriverEnv) -> None:
    answer = await send.enqueue({})
    assert await code_of(answer.result(timeout=SOON), JobTimeout) == {"job_id": str(answer.id), "state": "ready"}
    claimed = await env.claim_one(await env.register())
    assert (await code_of(answer.result(timeout=timedelta()), JobTimeout))["state"] == "running"
    await env.close_attempt(claimed.token, Completed(result='{"number":1}'))
    assert await answer.result(timeout=timedelta()) == Sent(number=1)


async def test_an_absent_and_a_purged_job_are_not_found(env: DriverEnv) -> None:
    await code_of(send.result(new_id()), JobNotFound)
    answer = await send.enqueue({})
    await finish(env)
    await env.advance(timedelta(minutes=1))
    await env.driver.purge(PurgeQuery(state=State.DONE, older_than=SECOND))
    await code_of(answer.result(timeout=LONG), JobNotFound)


async def test_a_key_that_is_taken_gives_the_result_of_the_job_that_has_it(env: DriverEnv) -> None:
    first = await send.enqueue({}, idempotency_key="one")
    second = await send.enqueue({}, idempotency_key="one")
    await finish(env)
    assert second.deduped
    assert await second.result(timeout=LONG) == await first.result() == Sent(number=7)


async def test_a_handle_reads_no_other_types_results(env: DriverEnv) -> None:
    answer = await send.enqueue({})
    await finish(env)
    await code_of(other.result(answer.id), RequestInvalid)


async def test_a_result_of_another_shape_is_a_coded_error(env: DriverEnv) -> None:
    answer = await send.enqueue({})
    await finish(env, result='{"number":"many"}')
    assert await code_of(answer.result(), ResultInvalid) == {"job_id": str(answer.id)}


async def test_many_waits_share_one_statement_and_one_listener(env: DriverEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    listened: list[object] = []
    ask, listen = env.below.finished_among, env.below.listen

    async def counting(job_ids: Sequence[JobId]) -> frozenset[JobId]:
        asked.append(len(job_ids))
        return await ask(job_ids)

    def counted(on_wake: Any, **options: Any) -> Any:
        listened.append(on_wake)
        return listen(on_wake, **options)

    monkeypatch.setattr(env.below, "finished_among", counting)
    monkeypatch.setattr(env.below, "listen", counted)
    answers = await send.enqueue_many([{}] * 100)
    async with asyncio.TaskGroup() as group:
        results = [group.create_task(one.result(timeout=LONG)) for one in [*answers, *answers]]
        while not asked or asked[-1] < 100:
            await asyncio.sleep(0.005)
        worker = await env.register()
        for claimed in await env.claim(worker, room=100):
            await env.close_attempt(claimed.token, Completed(result='{"number":3}'))
    assert {one.result().number for one in results} == {3}
    assert len(listened) == 1
    assert max(asked) == 100
    again = await send.enqueue({})
    async with waits(again.result(timeout=LONG)) as waiting:
        await finish(env)
        await waiting
    assert len(listened) == 1


async def test_a_wait_that_is_given_up_leaves_no_task_behind(env: DriverEnv) -> None:
    before = asyncio.all_tasks()
    answer = await send.enqueue({})
    async with waits(answer.result()) as waiting:
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    async with waits(answer.result()) as waiting:
        await env.driver.close()
        with pytest.raises(DriverUnavailable):
            await waiting
    assert [one for one in asyncio.all_tasks() - before if one.get_name().startswith("outlast")] == []


# --- staged


async def test_a_staged_id_leads_to_the_job_it_becomes(env: DriverEnv, outbox: Outbox) -> None:
    async with outbox.transaction() as session:
        staged = await send.enqueue({}, session=session)
        await code_of(send.result(staged), JobNotFound)
    assert await code_of(send.result(staged, timeout=SOON), JobTimeout) == {"job_id": str(staged.id), "state": "staged"}
    async with waits(send.result(staged, timeout=LONG)) as waiting:
        await outbox.publish()
        assert await finish(env) == staged.id
        assert await waiting == Sent(number=7)


async def test_a_staged_id_leads_to_the_job_that_has_its_key(env: DriverEnv, outbox: Outbox) -> None:
    first = await send.enqueue({}, idempotency_key="one")
    async with outbox.transaction() as session:
        staged = await send.enqueue({}, session=session, idempotency_key="one")
    async with waits(send.result(staged, timeout=LONG)) as waiting:
        await outbox.publish()
        assert await finish(env) == first.id
        assert await waiting == Sent(number=7)


async def test_a_staged_id_whose_row_is_refused_says_so(outbox: Outbox) -> None:
    await send.enqueue({}, idempotency_key="one")
    async with outbox.transaction() as session:
        staged = await send.enqueue({"shop": "another"}, session=session, idempotency_key="one")
    async with waits(send.result(staged, timeout=LONG)) as waiting:
        await outbox.publish()
        assert (await code_of(waiting, IdempotencyMismatch))["job_id"] == str(staged.id)


@pytest.mark.parametrize("look", range(4))
@pytest.mark.parametrize("key", [None, "one"], ids=["of its own", "of another"])
async def test_a_row_published_between_any_two_looks_at_its_id_is_found(
    env: DriverEnv, outbox: Outbox, monkeypatch: pytest.MonkeyPatch, key: str | None, look: int
) -> None:
    if key is not None:
        await send.enqueue({}, idempotency_key=key)
    async with outbox.transaction() as session:
        staged = await send.enqueue({}, session=session, idempotency_key=key)
    looks = 0

    def looked_at_through(asked: Any) -> Any:
        async def ask(*args: Any, **fields: Any) -> Any:
            nonlocal looks
            looks += 1
            if looks == look + 1:
                await outbox.publish()
                await finish(env)
            return await asked(*args, **fields)

        return ask

    for owner, verb in ((env.driver, "describe"), (outbox.store, "find"), (outbox.store, "forwarded")):
        monkeypatch.setattr(owner, verb, looked_at_through(getattr(owner, verb)))
    assert await send.result(staged, timeout=LONG) == Sent(number=7)
    assert looks > look
