"""The awaited client against the real application in this process, over each driver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

import httpx
import pytest
from pydantic import BaseModel

from app.client import AsyncClient, JobTimeout, Patience, ProblemError, State, UnreachableError
from app.domain.errors import PayloadInvalid, RequestInvalid
from app.domain.outcome import Completed
from app.jobs import job
from tests.client.conftest import PROMPT
from tests.http.api import BASE_URL, KEY, Api, dead, waiting
from tests.http.runs import approval, record, say, step, suspend
from tests.support.drivers import NAME, new_id

JOBS = 7


class Order(BaseModel):
    number: int


class Sent(BaseModel):
    at: datetime


@job(NAME)
async def send_receipt(order: Order) -> Sent:
    return Sent(at=datetime(2027, 1, 31, tzinfo=UTC) + timedelta(days=order.number))


@dataclass
class Reached:
    """A client and the application it reaches."""

    client: AsyncClient
    api: Api


@pytest.fixture
async def each(each_api: Api) -> AsyncIterator[Reached]:
    async with client_of(each_api) as client, each_api.up():
        yield Reached(client, each_api)


def client_of(api: Api, key: str | None = None) -> AsyncClient:
    return AsyncClient(BASE_URL, key, patience=PROMPT, transport=httpx.ASGITransport(app=api.app))


async def test_a_job_is_enqueued_found_and_awaited(each: Reached) -> None:
    client = each.client
    placed = await client.enqueue(NAME, {"n": 1.5e300, "big": 2**70}, tags=["a"], meta={"ticket": 1}, priority=2)
    assert not placed.deduped
    assert placed.job is not None
    assert (placed.job.state, placed.job.priority, placed.job.tags) == (State.READY, 2, ("a",))
    found = await client.get(placed)
    assert (found.id, found.payload, found.meta) == (placed.id, {"n": 1.5e300, "big": 2**70}, {"ticket": 1})
    async with asyncio.TaskGroup() as group:
        waiter = group.create_task(client.wait(placed, timeout=timedelta(seconds=10)))
        await waiting(each.api)
        await each.api.finish(Completed(result='{"lines": 3}'))
        assert await waiter == {"lines": 3}
    assert (await client.get(placed.id)).has_ended
    assert (await client.result(str(placed.id))).result == {"lines": 3}
    assert [attempt.outcome for attempt in await client.attempts(placed)] == ["completed"]


async def test_a_handle_gives_name_payload_and_result_their_types(each: Reached) -> None:
    placed = await each.client.enqueue(send_receipt, Order(number=2))
    assert (await each.client.get(placed)).payload == {"number": 2}
    await each.api.finish(Completed(result='{"at": "2027-02-02T00:00:00Z"}'))
    sent = await each.client.wait(placed, of=send_receipt)
    assert sent.at == datetime(2027, 2, 2, tzinfo=UTC)


async def test_a_taken_key_gives_the_job_that_has_it_or_names_it(each: Reached) -> None:
    client = each.client
    first = await client.enqueue(NAME, {}, idempotency_key="order:7", dedupe_for=timedelta(days=1))
    again = await client.enqueue(NAME, {}, idempotency_key="order:7")
    assert (again.id, again.deduped) == (first.id, True)
    with pytest.raises(ProblemError) as refused:
        await client.enqueue(NAME, {}, idempotency_key="order:7", on_conflict="error")
    assert (refused.value.code, refused.value.status) == ("JOB_DUPLICATE", 409)
    assert refused.value.details["existing_id"] == str(first.id)
    await each.api.finish()
    await client.delete(first)
    kept = await client.enqueue(NAME, {}, idempotency_key="order:7")
    assert (kept.id, kept.deduped, kept.job) == (first.id, True, None)


async def test_many_are_enqueued_all_or_none(each: Reached) -> None:
    client = each.client
    placed = await client.enqueue_many(send_receipt, [Order(number=n) for n in range(3)], priority=1)
    assert len({one.id for one in placed}) == 3
    job = await client.get(placed[2])
    assert (job.payload, job.priority) == ({"number": 2}, 1)
    with pytest.raises(ProblemError) as refused:
        await client.enqueue_many(NAME, [{}, {}], priority=77)
    assert (refused.value.code, refused.value.details["index"]) == ("REQUEST_INVALID", 0)
    assert len([job async for job in client.list()]) == 3


async def test_lists_go_on_by_themselves_and_stop_when_nobody_reads_on(each: Reached) -> None:
    placed = [(await each.client.enqueue(NAME, {"n": n})).id for n in range(JOBS)]
    found = [job.id async for job in each.client.list(name=NAME, state=State.READY, limit=2)]
    assert found == placed[::-1]
    counted = await each.client.count(state=State.READY)
    assert (counted.value, counted.capped) == (JOBS, False)
    await each.client.enqueue(NAME, {}, tags=["a", "b"])
    assert [job.tags async for job in each.client.list(tag_all=["a", "b"], parent_id=new_id())] == []
    assert [job.tags async for job in each.client.list(tag="a")] == [("a", "b")]
    assert [job async for job in each.client.list(state=[State.DEAD, State.HELD])] == []
    some = each.client.list(limit=2)
    assert (await anext(some)).tags == ("a", "b")
    assert (await anext(some)).id == placed[-1]
    assert (await anext(some)).id == placed[-2]


async def test_actions_say_what_they_found(each: Reached) -> None:
    client = each.client
    placed = await client.enqueue(NAME, {"n": 1}, delay=timedelta(hours=1))
    seen = await client.get(placed)
    assert seen.state is State.DELAYED
    assert (await client.update(seen, priority=1, reason="urgent")).priority == 1
    with pytest.raises(ProblemError) as stale:
        await client.update(seen, priority=2)
    assert (stale.value.code, stale.value.retryable) == ("PRECONDITION_FAILED", False)
    with pytest.raises(ProblemError) as blind:
        await client.update(placed.id, priority=2)
    assert blind.value.code == "PRECONDITION_REQUIRED"
    assert (await client.explain(placed)).reasons[0].code == "delayed"
    assert (await client.run_now(placed)).state is State.READY
    assert (await client.duplicate(placed, input_patch={"n": 2})).payload == {"n": 2}
    assert (await client.cancel(placed, reason="no longer")).verdict == "cancelled_before_start"
    assert (await client.cancel(placed)).verdict == "already_finished"
    assert (await client.retry(placed)).state is State.READY
    assert (await client.audit(target=str(placed.id)).__anext__()).action.startswith("job")


async def test_what_a_run_did_is_read_as_values(each: Reached) -> None:
    client, api = each.client, each.api
    placed = await client.enqueue(NAME, {})
    claimed = await api.claim()
    await record(api, claimed, step("load"), step("send", 1))
    await say(api, claimed, "one", "two", progress=(0.5, "half"))
    await suspend(api, claimed, approval(2))
    steps = [one.name async for one in client.steps(placed, limit=1)]
    assert steps == ["load", "send"]
    assert [line.message async for line in client.logs(placed, limit=1)] == ["one", "two"]
    (wait,) = (await client.waits(placed)).waits
    assert (wait.event, wait.key) == ("order.approved", "7")
    assert (await client.timeline(placed)).spans[0].kind == "attempt"
    assert (await client.emit("order.approved", "7", {"by": "anna"})).matched == 1
    assert [event.payload async for event in client.emitted(key="7")] == [{"by": "anna"}]


async def test_operators_act_on_queues_and_on_many_jobs(each: Reached) -> None:
    client = each.client
    ids = [(await client.enqueue(NAME, {})).id for _ in range(3)]
    queue = (await client.queues.list())[0]
    assert queue.depth[State.READY] == 3
    assert (await client.queues.pause(queue.name, reason="mail is down")).pause_reason == "mail is down"
    assert not (await client.queues.resume(queue.name)).is_paused
    limited = await client.queues.limit(queue.name, concurrency=4, max_depth=9)
    assert ((limited.concurrency, limited.max_depth)) == (4, 9)
    limited = await client.queues.limit(queue.name, max_depth=None)
    assert ((limited.concurrency, limited.max_depth)) == (4, None)
    assert (await client.bulk.count("cancel", filter={"name": NAME})).matched == 3
    with pytest.raises(ProblemError) as changed:
        await client.bulk.start("cancel", ids=ids, expected_count=2)
    assert (changed.value.code, changed.value.details["count"]) == ("COUNT_CHANGED", 3)
    operation = await client.bulk.start("cancel", ids=ids, expected_count=3, reason="a test")
    assert [one.job_id async for one in client.bulk.items(operation, limit=2)] == sorted(ids)
    assert (await client.bulk.abort(operation)).state == "aborted"
    assert [one.id async for one in client.bulk.list()] == [operation.id]


async def test_the_service_shows_itself(each: Reached) -> None:
    client = each.client
    assert (await client.version()).version == "0.0.0"
    assert (await client.drains.get()).state == "running"
    assert (await client.drains.fleet()).live == 0
    assert [kind.name for kind in await client.job_types.list()] == [NAME]
    assert (await client.job_types.get(NAME)).policy is not None
    assert (await client.outbox()).staged.value == 0
    assert (await client.doctor()).checks
    assert (await client.schedules.preview("@daily", "Europe/Berlin", n=2)).fires[1].local


async def test_a_wait_ends_in_time_or_with_the_job(each: Reached) -> None:
    client = each.client
    placed = await client.enqueue(NAME, {})
    with pytest.raises(JobTimeout) as late:
        await client.wait(placed, timeout=timedelta(milliseconds=50))
    assert late.value.details["state"] == "ready"
    await each.api.finish(dead())
    with pytest.raises(ProblemError) as failed:
        await client.wait(placed, timeout=timedelta(seconds=5))
    assert (failed.value.code, failed.value.details["error"]["type"]) == ("JOB_FAILED", "ValueError")


async def test_problems_carry_code_cause_and_repair(each: Reached) -> None:
    with pytest.raises(ProblemError) as absent:
        await each.client.get(new_id())
    problem = absent.value
    assert (problem.code, problem.status, problem.retryable) == ("JOB_NOT_FOUND", 404, False)
    assert problem.fix in str(problem)
    assert problem.request_id
    with pytest.raises(ProblemError) as wrong:
        await each.client.enqueue(NAME, {}, priority=77)
    assert (wrong.value.code, wrong.value.errors[0]["pointer"]) == ("REQUEST_INVALID", "/priority")


async def test_a_key_is_needed_and_enough(locked: Api) -> None:
    async with client_of(locked) as stranger, client_of(locked, KEY) as client:
        with pytest.raises(ProblemError) as refused:
            await stranger.queues.list()
        assert (refused.value.code, refused.value.status) == ("UNAUTHENTICATED", 401)
        assert (await client.enqueue(NAME, None)).job is not None


async def test_what_has_no_json_form_or_no_unit_never_leaves(api: Api) -> None:
    async with client_of(api) as client:
        with pytest.raises(PayloadInvalid):
            await client.enqueue(NAME, {"n": float("nan")})
        with pytest.raises(PayloadInvalid):
            await client.enqueue(NAME, {"n": object()})
        with pytest.raises(RequestInvalid, match="no zone"):
            await client.enqueue(NAME, {}, run_at=datetime(2027, 1, 31))  # noqa: DTZ001 - the mistake
        with pytest.raises(RequestInvalid, match="no duration"):
            await client.enqueue(NAME, {}, timeout=3)  # type: ignore[arg-type] # the mistake
        assert [job async for job in client.list()] == []


async def test_where_nobody_answers_it_says_whether_it_may_be_done() -> None:
    async with AsyncClient("http://127.0.0.1:9", patience=Patience(deadline=timedelta(milliseconds=50))) as client:
        with pytest.raises(UnreachableError) as away:
            await client.cancel(UUID(int=1))
    assert not away.value.maybe_done
