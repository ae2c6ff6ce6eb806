"""Callers that share statements: each is answered after its own commit, and nobody pays for a neighbour."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.domain.errors import DriverUnavailable, IdempotencyMismatch, JobDuplicate, OutlastError, RequestInvalid
from app.domain.job import Enqueued, NewJob, RunId
from app.drivers.postgres import enqueue_lane
from app.drivers.postgres.connect import connect
from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.postgres.enqueue_lane import MAX_CHARS, MAX_ROWS, EnqueueLane
from app.jobs import Client, job
from app.jobs.request import EnqueueRequest
from tests.support.drivers import new_job


@job("a.note")
def note() -> None: ...


def _answer(job: NewJob) -> Enqueued:
    return Enqueued(id=job.id, run_id=RunId(job.id), deduped=False)


class _Store:
    """Records what is sent; holds each statement until let go when told to."""

    def __init__(self) -> None:
        self.batches: list[list[NewJob]] = []
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued | OutlastError]:
        self.batches.append(list(jobs))
        self.begun.set()
        await self.gate.wait()
        if any(job.queue == "bad" for job in jobs):
            raise RequestInvalid("no such value", fix="none")
        if any(job.queue == "away" for job in jobs):
            raise DriverUnavailable("away", fix="wait")
        return [JobDuplicate("taken", fix="none") if job.queue == "taken" else _answer(job) for job in jobs]


async def test_what_gathers_while_a_statement_commits_goes_out_in_the_next() -> None:
    store = _Store()
    lane = EnqueueLane(store)
    store.gate.clear()
    first = asyncio.create_task(lane.enqueue(new_job()))
    await store.begun.wait()
    others = [asyncio.create_task(lane.enqueue(new_job())) for _ in range(63)]
    await asyncio.sleep(0)
    store.gate.set()
    answers = await asyncio.gather(first, *others)
    assert [len(batch) for batch in store.batches] == [1, 63]
    assert {answer.id for answer in answers} == {job.id for batch in store.batches for job in batch}


async def test_callers_that_were_answered_together_come_back_together() -> None:
    """And the one that came first waits for them: a commit for it alone would cost what theirs does."""
    store = _Store()
    lane = EnqueueLane(store)

    async def call() -> None:
        for _ in range(3):
            await lane.enqueue(new_job())

    store.gate.clear()
    first = asyncio.create_task(call())
    await store.begun.wait()
    others = [asyncio.create_task(call()) for _ in range(15)]
    await asyncio.sleep(0)
    store.gate.set()
    await asyncio.gather(first, *others)
    assert [len(batch) for batch in store.batches] == [1, 16, 16, 15]


async def test_a_batch_is_bounded_by_rows_and_by_text() -> None:
    store = _Store()
    lane = EnqueueLane(store)
    await asyncio.gather(*(lane.enqueue(new_job()) for _ in range(MAX_ROWS + 1)))
    assert [len(batch) for batch in store.batches] == [MAX_ROWS, 1]
    store.batches.clear()
    large = [replace(new_job(), payload='"' + "x" * (MAX_CHARS // 2) + '"') for _ in range(3)]
    await asyncio.gather(*(lane.enqueue(job) for job in large))
    assert [len(batch) for batch in store.batches] == [1, 1, 1]


async def test_a_bad_value_fails_its_own_caller_and_a_refusal_too() -> None:
    store = _Store()
    lane = EnqueueLane(store)
    jobs = [new_job(queue=queue) for queue in ("a", "bad", "b", "taken", "c")]
    answers = await asyncio.gather(*(lane.enqueue(job) for job in jobs), return_exceptions=True)
    assert [type(answer) for answer in answers] == [Enqueued, RequestInvalid, Enqueued, JobDuplicate, Enqueued]


async def test_an_outage_is_told_to_every_caller_in_an_error_of_its_own() -> None:
    store = _Store()
    lane = EnqueueLane(store)
    answers = await asyncio.gather(*(lane.enqueue(new_job(queue="away")) for _ in range(5)), return_exceptions=True)
    assert {type(answer) for answer in answers} == {DriverUnavailable}
    assert len({id(answer) for answer in answers}) == 5
    assert len(store.batches) == 1


async def test_a_caller_that_goes_away_leaves_its_row_on_its_way() -> None:
    store = _Store()
    lane = EnqueueLane(store)
    store.gate.clear()
    caller = asyncio.create_task(lane.enqueue(new_job()))
    await store.begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    neighbour = asyncio.create_task(lane.enqueue(new_job()))
    store.gate.set()
    assert (await neighbour).deduped is False
    await lane.close()
    assert [len(batch) for batch in store.batches] == [1, 1]


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the last round end at once."""
    monkeypatch.setattr(enqueue_lane, "_LAST_ROUND_SECONDS", 0.05)


@pytest.mark.usefixtures("hasty")
async def test_a_close_tells_whoever_it_leaves_what_is_known_of_their_rows() -> None:
    store = _Store()
    lane = EnqueueLane(store)
    store.gate.clear()
    sent = [asyncio.create_task(lane.enqueue(new_job())) for _ in range(2)]
    await store.begun.wait()
    queued = [asyncio.create_task(lane.enqueue(new_job())) for _ in range(3)]
    await asyncio.sleep(0)
    queued[0].cancel()
    await lane.close()
    answers = await asyncio.wait_for(asyncio.gather(*sent, *queued, return_exceptions=True), 5)
    assert [type(answer) for answer in answers] == [
        *(DriverUnavailable, DriverUnavailable),
        *(asyncio.CancelledError, DriverUnavailable, DriverUnavailable),
    ]
    assert ["unknown" in str(answer) for answer in answers] == [True, True, False, False, False]
    assert ["is not stored" in str(answer) for answer in answers] == [False, False, False, True, True]
    assert len({id(answer) for answer in answers}) == 5
    assert [len(batch) for batch in store.batches] == [2], "nothing was sent that is said not to be"


@pytest.mark.usefixtures("hasty")
async def test_a_caller_that_comes_while_the_lane_closes_is_told_too() -> None:
    store = _Store()
    lane = EnqueueLane(store)
    store.gate.clear()
    first = asyncio.create_task(lane.enqueue(new_job()))
    await store.begun.wait()
    closing = asyncio.create_task(lane.close())
    await asyncio.sleep(0)
    late = asyncio.create_task(lane.enqueue(new_job()))
    await closing
    answers = await asyncio.wait_for(asyncio.gather(first, late, return_exceptions=True), 5)
    assert [type(answer) for answer in answers] == [DriverUnavailable, DriverUnavailable]


@pytest.mark.usefixtures("hasty")
async def test_on_postgres_a_close_answers_every_caller_and_sends_no_more(database_url: str) -> None:
    driver = PostgresDriver(create_engine(database_url, pool_size=4), owns_engine=True)
    await driver.open()
    beside = await connect(create_engine(database_url).url, application_name="beside")
    async with beside.transaction():
        await beside.execute("lock table outlast.job in share row exclusive mode")
        client = Client(driver)
        requests = [EnqueueRequest(name=note.name, payload_text="{}", tags=(tag,)) for tag in ("sent", "left")]
        sent = asyncio.create_task(client.enqueue(note.job_type, requests[0]))
        while not await beside.fetchval("select count(*) from pg_locks where not granted"):
            await asyncio.sleep(0.01)
        left = asyncio.create_task(client.enqueue(note.job_type, requests[1]))
        await asyncio.sleep(0)
        await driver.close()
        answers = await asyncio.wait_for(asyncio.gather(sent, left, return_exceptions=True), 5)
    assert [type(answer) for answer in answers] == [DriverUnavailable, DriverUnavailable]
    assert ["unknown" in str(answer) for answer in answers] == [True, False]
    assert ["is not stored" in str(answer) for answer in answers] == [False, True]
    assert await beside.fetchval("select count(*) from outlast.job where tags = '{left}'") == 0
    await beside.close()


@pytest.mark.parametrize("queue", ["taken", "away", "bad"])
async def test_what_refuses_the_row_of_a_caller_that_went_away_is_nobodys_error(queue: str) -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    store = _Store()
    lane = EnqueueLane(store)
    store.gate.clear()
    caller = asyncio.create_task(lane.enqueue(new_job(queue=queue)))
    neighbour = asyncio.create_task(lane.enqueue(new_job(queue="taken")))
    await store.begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    store.gate.set()
    with pytest.raises(OutlastError):
        await neighbour
    await lane.close()
    gc.collect()
    assert complaints == []


async def test_on_postgres_concurrent_callers_share_statements_and_keep_their_own_answers(database_url: str) -> None:
    driver = PostgresDriver(create_engine(database_url, pool_size=4), owns_engine=True)
    await driver.open()
    held = new_job(key="held", fingerprint=1)
    await driver.enqueue(held)
    plain = [new_job() for _ in range(40)]
    same_key = [new_job(key="shared", fingerprint=7) for _ in range(10)]
    refused = [new_job(key="held", fingerprint=2), new_job(key="held", fingerprint=1, on_conflict="error")]
    bad = replace(new_job(), priority=40_000)
    answers = await asyncio.gather(
        *(driver.enqueue(job) for job in (*plain, *same_key, *refused, bad)), return_exceptions=True
    )
    stored = [answer for answer in answers if isinstance(answer, Enqueued)]
    assert [answer.id for answer in stored[:40]] == [job.id for job in plain]
    shared = stored[40:]
    assert len({answer.id for answer in shared}) == 1
    assert sum(not answer.deduped for answer in shared) == 1
    assert [type(answer) for answer in answers[50:]] == [IdempotencyMismatch, JobDuplicate, RequestInvalid]
    assert sum((await driver.stats()).by_state.values()) == 42
    await driver.close()
