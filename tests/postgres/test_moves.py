"""Jobs are moved between two databases: as they were, all that can be, and each exactly once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from app.control.moving import MoveControl
from app.domain.audit import Acting, AuditQuery
from app.domain.errors import DriverVolatile, JobStateConflict, RequestInvalid
from app.domain.job import JobId, LimitKey
from app.domain.moving import Bucket, Verdict
from app.domain.outcome import Completed, Held, Interrupted, Retried
from app.domain.state import State
from app.domain.step import NewNotes
from app.drivers.memory.driver import MemoryDriver
from app.drivers.moving import MoveStore, moves_of
from tests.conformance.runs import (
    a_sleep,
    an_event,
    called,
    emit,
    enlist,
    history,
    record,
    settle,
    state_of,
    suspend,
    suspended,
)
from tests.support.drivers import ERROR, NAME, PostgresEnv, new_id, new_job, postgres_env

pytestmark = pytest.mark.postgres

_WHERE = ("here/one", "there/two")
_BY = Acting(actor="ada", reason="a bigger machine")
_HOUR = timedelta(hours=1)
_ENVELOPE = """
select (to_jsonb(j) - 'name_id' - 'seq')::text as row,
  (select jsonb_agg(to_jsonb(x) order by x.kind)::text from outlast.expiry x where x.job_id = j.id) as expiries
from outlast.job j where j.id = $1"""


class Two(NamedTuple):
    """Two databases, and a move from the first to the second."""

    source: PostgresEnv
    target: PostgresEnv

    @property
    def control(self) -> MoveControl:
        return MoveControl(self.source.driver, self.target.driver, where=_WHERE)

    async def move(self, **options: Any) -> Counter[str]:
        """Move everything; gives how many jobs came to what."""
        came: Counter[str] = Counter()
        async for step in self.control.move(queue=options.pop("queue", None), by=_BY, **options):
            came.update({verdict.value: count for verdict, count in step.verdicts.items()})
            came.update(step.stayed)
        assert await fetch(self.source, "select from outlast.moving") == []
        return +came


@pytest.fixture
async def two(make_database: Callable[..., str]) -> AsyncIterator[Two]:
    async with postgres_env(make_database()) as source, postgres_env(make_database(), source.now()) as target:
        # Names have other numbers there.
        await target.enqueue("another.job", queue="elsewhere")
        yield Two(source, target)


async def fetch(env: PostgresEnv, sql: str, *args: object) -> list[Any]:
    driver: Any = env.driver
    return list(await driver._db.run(lambda conn: conn.fetch(sql, *args)))


def ends_of(env: PostgresEnv) -> MoveStore:
    found = moves_of(env.driver)
    assert found is not None
    return found


async def ids_in(env: PostgresEnv, queue: str = "default") -> list[JobId]:
    """Give the ids of all jobs of a queue, in the order in which they were enqueued."""
    rows = await fetch(env, "select id from outlast.job where queue = $1 order by id", queue)
    return [JobId(UUID(str(row["id"]))) for row in rows]


async def test_a_job_arrives_as_it_was(two: Two) -> None:
    """Everything that can be given, two failures and an interruption behind it, steps, lines and progress."""
    source, target = two
    worker = await enlist(source)
    held = await source.running(
        worker,
        payload='{"x": 1.5e300,  "y": "\\u00e9\\ud83d\\ude00 \\"q\\"", "z": -0.0}',
        priority=2,
        tenant="acme",
        key="order:7",
        fingerprint=2**63 - 1,
        dedupe_for=24 * _HOUR,
        deadline=48 * _HOUR,
        max_queue_time=2 * _HOUR,
        timeout=timedelta(seconds=3),
        max_attempts=7,
        parent_id=new_id(),
        enqueued_by="shop",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        tags=("a", 'b"\\,{}'),
        meta='{"k": "v"}',
    )
    job_id = held.token.job_id
    await record(source, held.token, "load", "book")
    await source.driver.note([NewNotes(held.token, lines=("one", "two"), progress=(0.4, "half"))])
    await source.close_attempt(held.token, Interrupted(cause="drain"))
    held = await source.claim_one(worker)
    await source.close_attempt(held.token, Retried(error=ERROR, delay=_HOUR))
    before, ledger = await source.describe(job_id), await source.ledger(job_id)
    envelope, run = await fetch(source, _ENVELOPE, job_id), await source.driver.run(job_id)

    assert await two.move() == {"moved": 1}

    assert await source.driver.describe(job_id) is None
    assert await target.describe(job_id) == before
    # Which worker it was is a number of the store that it ran in.
    assert list(await target.ledger(job_id)) == [replace(attempt, worker_id=None) for attempt in ledger]
    assert await fetch(target, _ENVELOPE, job_id) == envelope
    there = await target.driver.run(job_id)
    assert run is not None
    assert there is not None
    assert [(step.name, step.value, step.place, step.claim_no) for step in there.history.steps] == [
        (step.name, step.value, step.place, step.claim_no) for step in run.history.steps
    ]
    assert [line.message for line in there.lines] == ["one", "two"]
    assert there.progress == run.progress
    for table in ("attempt", "expiry", "progress", "run_line", "step", "waiting"):
        assert await fetch(source, f"select from outlast.{table}") == [], table
    again = await source.enqueue_again(key="order:7", tenant="acme", fingerprint=2**63 - 1)
    assert (again.id, again.deduped) == (job_id, True), "within its window the key stays taken here, too"
    await target.advance(_HOUR)
    await target.driver.promote()
    held = await target.claim_one(await enlist(target))
    await settle(target, held, Completed())
    assert (await target.enqueue_again(key="order:7", tenant="acme", fingerprint=2**63 - 1)).id == job_id
    assert (await target.describe(job_id)).state is State.DONE


async def test_jobs_come_in_their_order_and_from_every_bucket(two: Two) -> None:
    source, target = two
    ready = [await source.enqueue(priority=priority) for priority in (5, 1, 5, 9)]
    later = await source.enqueue(delay=_HOUR)
    limited = [await source.enqueue(limits=(LimitKey("one", "k"),)) for _ in range(2)]
    assert await two.move(batch=3) == {"moved": 7}
    states = {job_id: await state_of(target, job_id) for job_id in (*ready, later, *limited)}
    assert states == dict.fromkeys((*ready, *limited), State.READY) | {later: State.DELAYED}
    assert len(await fetch(target, "select from outlast.gate")) == 2
    claimed = [job.token.job_id for job in await target.claim(await enlist(target), room=50)]
    assert [job_id for job_id in claimed if job_id in ready] == [ready[1], ready[0], ready[2], ready[3]]


async def test_one_queue_is_moved_and_the_others_are_left(two: Two) -> None:
    source, target = two
    wanted = [await source.enqueue(queue="mail") for _ in range(5)]
    await source.enqueue(queue="mail", delay=_HOUR)
    other = [await source.enqueue(queue=queue) for queue in ("a", "zoo", "mailing")]
    assert await two.move(queue="mail", batch=2) == {"moved": 6}
    assert set(wanted) < set(await ids_in(target, "mail"))
    assert [await state_of(source, job_id) for job_id in other] == [State.READY] * 3


async def test_what_is_bound_to_its_store_stays_and_is_counted(two: Two) -> None:
    source, target = two
    worker = await enlist(source)
    running = await source.running(worker)
    asleep = await suspended(source, a_sleep(), worker=worker)
    held = await source.running(worker)
    await source.close_attempt(held.token, Held(reason="does not fit"))
    parent, child = await called(source, worker)
    await settle(source, child, Interrupted(cause="drain"))
    woken = await source.running(worker)
    await suspend(source, woken, an_event(), a_sleep(number=1))
    await emit(source)
    assert await state_of(source, woken.token.job_id) is State.READY
    counted = await two.control.count()
    assert (counted.going, counted.staying, counted.on_the_way) == (
        {State.READY: 2, State.DELAYED: 0},
        {State.RUNNING: 1, State.SUSPENDED: 2, State.HELD: 1},
        0,
    )
    assert await two.move() == {"called": 1, "waits": 1}
    assert await ids_in(target) == []
    live = [running, asleep, held, parent, child, woken]
    assert all([await source.driver.describe(job.token.job_id) for job in live])


async def test_an_event_that_was_taken_is_not_another_one_there(two: Two) -> None:
    source, target = two
    held = await source.running(await enlist(source))
    await suspend(source, held, an_event())
    await emit(source)
    taken = (await history(source, held.token.job_id)).steps
    assert [step.has_event for step in taken] == [True]
    assert await two.move() == {"moved": 1}
    (step,) = (await history(target, held.token.job_id)).steps
    assert (step.name, step.value, step.has_event) == ("approval", '{"by": "ann"}', True)
    worker = await enlist(target)
    held = await target.claim_one(worker)
    await emit(target, '{"by": "bob"}')
    assert await suspend(target, held, an_event("second", 1)) is State.READY
    assert [one.value for one in (await history(target, held.token.job_id)).steps] == [
        '{"by": "ann"}',
        '{"by": "bob"}',
    ]


async def test_a_key_that_is_taken_there_sends_the_job_back(two: Two) -> None:
    source, target = two
    await target.enqueue(key="k", fingerprint=1)
    refused = await source.enqueue(key="k", fingerprint=1, delay=_HOUR, tags=("t",))
    fine = await source.enqueue(key="free")
    before = await source.describe(refused)
    assert await two.move() == {"key_taken": 1, "moved": 1}
    assert await source.describe(refused) == before
    assert (await source.enqueue_again(key="k", fingerprint=1)).id == refused
    assert await target.driver.describe(refused) is None
    assert await state_of(target, fine) is State.READY
    assert (await source.enqueue_again(key="free")).deduped is False, "the key of what has arrived is free"
    assert await fetch(target, "select from outlast.source where job_id = $1", refused) == []


async def test_a_job_that_comes_twice_is_stored_once_even_when_it_is_gone(two: Two) -> None:
    source, target = two
    job_id = await source.enqueue(key="k")
    identity = await ends_of(target).identity()
    taken = await ends_of(source).take(Bucket.READY, target=identity)
    assert (taken.taken, await source.driver.describe(job_id)) == (1, None)
    (moving,) = await ends_of(source).left(identity)
    assert await ends_of(target).receive([moving]) == {moving.id: Verdict.MOVED}
    held = await target.claim_one(await enlist(target))
    await settle(target, held, Completed())
    await target.driver.delete(job_id)
    assert await two.move() == {"moved": 1}, "what was on its way comes to its end"
    assert await target.driver.describe(job_id) is None
    assert await ids_in(source) == []


async def test_it_may_come_back_and_go_again(two: Two) -> None:
    source, target = two
    job_id = await source.enqueue(key="k", source_id=new_id())
    for _ in range(2):
        assert await two.move() == {"moved": 1}
        assert await ids_in(target) == [job_id]
        assert await Two(target, source).move(queue="default") == {"moved": 1}
        assert await ids_in(source) == [job_id]
        assert await ids_in(target) == []


async def test_what_may_have_been_forgotten_is_not_sent(two: Two) -> None:
    source, target = two
    await source.enqueue()
    identity = await ends_of(target).identity()
    await ends_of(source).take(Bucket.READY, target=identity)
    await source.execute("update outlast.moving set taken_at = outlast.clock() - interval '90 days'")
    with pytest.raises(JobStateConflict, match="cannot be known"):
        await two.move()
    assert await ends_of(source).on_the_way() == {identity: 1}


async def test_workers_of_both_sides_run_every_job_once(two: Two) -> None:
    """Claims on either side, while two moves are under way."""
    source = two.source
    jobs = set(await _many(source, 300))
    ran: Counter[JobId] = Counter()
    over = asyncio.Event()

    async def work(env: PostgresEnv) -> None:
        worker = await enlist(env, concurrency=50)
        while (claimed := await env.claim(worker, room=5)) or not over.is_set():
            for held in claimed:
                ran[held.token.job_id] += 1
                await settle(env, held, Completed())
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for env in two:
            group.create_task(work(env))
        await asyncio.gather(two.move(batch=7), _quietly(two, 11))
        over.set()
    assert set(ran) == jobs
    assert set(ran.values()) == {1}


async def _quietly(two: Two, batch: int) -> None:
    async for _ in two.control.move(queue=None, batch=batch, by=_BY):
        pass


async def _many(env: PostgresEnv, count: int) -> list[JobId]:
    return [answer.id for answer in await env.driver.enqueue_many([new_job(NAME) for _ in range(count)])]


async def test_both_sides_say_who_moved_what(two: Two) -> None:
    await _many(two.source, 5)
    await two.move(batch=2)
    ends = ((two.source, two.target, "to", _WHERE[1]), (two.target, two.source, "from", _WHERE[0]))
    for env, other, word, where in ends:
        rows = (await env.driver.audit(AuditQuery())).items
        assert {row.target for row in rows} == {await ends_of(other).identity()}
        told = [(row.action, row.outcome, row.actor, row.reason, json.loads(row.details)) for row in rows]
        assert told == [
            ("store.move", "done", "ada", "a bigger machine", {word: where, "jobs_moved": 5}),
            ("store.move", "begun", "ada", "a bigger machine", {word: where}),
        ]


async def test_nothing_to_move_leaves_no_row(two: Two) -> None:
    assert await two.move() == {}
    assert (await two.source.driver.audit(AuditQuery())).items == ()


async def test_the_same_database_and_a_volatile_one_are_refused(two: Two) -> None:
    with pytest.raises(RequestInvalid, match="database that the jobs are in"):
        await Two(two.source, two.source).move()
    with pytest.raises(DriverVolatile, match="memory://"):
        await MoveControl(two.source.driver, MemoryDriver(), where=_WHERE).count()
