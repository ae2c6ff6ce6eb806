"""Connections under trouble: cancelled calls, the heartbeat's own connection, and every verb in another schema."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import threading
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from app.domain.errors import DriverUnavailable
from app.domain.job import ClaimToken, JobId, WorkerId
from app.domain.outcome import CancelVerdict, Completed, DeadLettered, Retried, SettleAnswer, Settlement
from app.domain.snapshot import JobTypeDoc, Renewal
from app.domain.state import DeadReason, State
from app.drivers.postgres import heartbeat, migrations, rollback
from app.drivers.postgres.connect import connect
from app.drivers.postgres.database import Database, Raw, create_engine
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.postgres.run_locks import looking
from app.drivers.protocol import ClaimRequest, PurgeQuery, QueueShare
from app.drivers.reading import ListQuery
from tests.postgres.arena import Arena
from tests.support.drivers import ERROR, LEASE, NAME, new_job, new_worker
from tests.support.proxy import proxy_to

pytestmark = pytest.mark.postgres


def claim_request(worker: WorkerId, room: int = 10) -> ClaimRequest:
    return ClaimRequest(
        worker_id=worker, shares=(QueueShare(queue="default", room=room),), names=frozenset({NAME}), room=room
    )


async def heartbeat_backend(arena: Arena) -> int:
    (row,) = await arena.fetch(
        "select pid from pg_stat_activity where application_name = 'outlast heartbeat' and datname = current_database()"
    )
    return int(row[0])


@pytest.mark.parametrize(
    ("lease", "kept"), [(timedelta(seconds=2), ("1s", "2s")), (timedelta(seconds=30), ("5s", "10s"))]
)
async def test_a_frozen_process_keeps_its_locks_no_longer_than_its_lease(
    database_url: str, lease: timedelta, kept: tuple[str, str]
) -> None:
    """What it waits for it stops waiting for before: two transactions of it do not have a lock one after the other."""
    connection = await connect(database_url, application_name="under test", lease=lease)
    try:
        limits = ("lock_timeout", "idle_in_transaction_session_timeout")
        assert tuple([await connection.fetchval("select current_setting($1)", name) for name in limits]) == kept
    finally:
        await connection.close()


async def test_of_two_transactions_of_a_frozen_process_only_one_ever_has_the_lock(database_url: str) -> None:
    """Neither says another word. Who waits for the other is refused the lock before the server ends the other."""
    frozen, lease = "insert into outlast.job_name(name) values ('a key')", timedelta(seconds=0.5)
    one, other = [await connect(database_url, application_name="frozen", lease=lease) for _ in range(2)]
    living = await connect(database_url, application_name="living")
    try:
        await one.execute(f"begin; {frozen}")
        await other.execute("begin")
        with pytest.raises(asyncpg.LockNotAvailableError):
            await other.execute(frozen)
        assert await living.execute(frozen) == "INSERT 0 1"
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)):
            await one.execute("commit")
    finally:
        for connection in (one, other, living):
            connection.terminate()


async def test_a_transaction_that_is_cancelled_behind_a_black_hole_is_not_waited_for(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rollback would ask a server that does not answer, for as long as a statement may take."""
    monkeypatch.setattr(rollback, "ROLLBACK_SECONDS", 0.05)
    async with proxy_to(database_url, tmp_path) as proxy:
        engine = create_engine(proxy.url, pool_size=1, application_name="cut off")
        db, is_within = Database(engine), asyncio.Event()

        async def verb(conn: Raw) -> None:
            async with looking(conn):
                await conn.fetchval("select 1")
                proxy.is_black_hole = True
                is_within.set()
                await conn.fetchval("select 2")

        call = asyncio.create_task(db.run(verb))
        await is_within.wait()
        await asyncio.sleep(0)  # the statement is sent
        call.cancel()
        async with asyncio.timeout(5):
            with pytest.raises(asyncio.CancelledError):
                await call
        proxy.is_black_hole = False
        async with db.raw() as conn:
            assert await conn.fetchval("select 3") == 3
        await db.close()
        await engine.dispose()


@pytest.mark.parametrize("seed", [1, 2])
async def test_claims_cut_off_at_random_lose_no_job_and_no_connection(
    arena: Arena, database_url: str, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    chance = random.Random(seed)
    engine = create_engine(database_url, pool_size=3, application_name="cut off")
    driver = PostgresDriver(engine)
    worker = await arena.register()
    jobs = [new_job() for _ in range(300)]
    await arena.driver.enqueue_many(jobs)
    held: list[ClaimToken] = []
    with caplog.at_level(logging.WARNING):
        for _ in range(60):
            task = asyncio.create_task(driver.claim(claim_request(worker, room=5)))
            for _ in range(chance.randrange(0, 12)):
                await asyncio.sleep(0)
            if chance.random() < 0.5:
                await asyncio.wait((task,), timeout=chance.random() * 0.003)
            task.cancel()
            try:
                held += [claim.token for claim in await task]
            except asyncio.CancelledError:
                await driver.reconcile(worker, held)
        await driver.reconcile(worker, held)
    held += [claim.token for claim in await driver.claim(claim_request(worker, room=300))]
    assert sorted(token.job_id for token in held) == sorted(job.id for job in jobs)
    answers = await driver.settle([Settlement(token=token, outcome=Completed()) for token in held])
    assert set(answers) == {SettleAnswer.SETTLED}
    (row,) = await arena.fetch(
        "select count(*) from pg_stat_activity where application_name = 'cut off' and datname = current_database()"
        " and state <> 'active'"
    )
    assert row[0] <= 3
    await driver.close()
    await engine.dispose()
    assert [record.getMessage() for record in caplog.records] == []


async def test_a_heartbeat_beats_from_a_thread_of_its_own(arena: Arena) -> None:
    worker = await arena.register()
    token = (await arena.running(worker)).token
    renewals: list[Renewal] = []

    async def beat() -> None:
        async with arena.driver.open_heartbeat() as store:
            renewals.append(await store.renew(worker, [token]))

    thread = threading.Thread(target=lambda: asyncio.run(beat()))
    thread.start()
    await asyncio.to_thread(thread.join)
    assert renewals == [Renewal(is_held=True)]


async def test_a_heartbeat_opens_another_connection_after_its_own_was_cut(arena: Arena) -> None:
    worker = await arena.register()
    async with arena.driver.open_heartbeat() as store:
        await store.renew(worker, [])
        first = await heartbeat_backend(arena)
        await arena.fetch("select pg_terminate_backend($1)", first)
        async with asyncio.timeout(10):
            while await arena.fetch("select from pg_stat_activity where pid = $1", first):
                pass
        try:
            renewal = await store.renew(worker, [])
        except DriverUnavailable:  # the news of the cut had not arrived yet
            renewal = await store.renew(worker, [])
        assert renewal.is_held
        assert await heartbeat_backend(arena) != first


async def test_a_heartbeat_that_is_not_answered_says_so_in_time(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "COMMAND_TIMEOUT", timedelta(milliseconds=500))
    worker = await arena.register()
    async with arena.driver.open_heartbeat() as store:
        await store.renew(worker, [])
        pid = await heartbeat_backend(arena)
        os.kill(pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(5):
                with pytest.raises(DriverUnavailable):
                    await store.renew(worker, [])
                assert (await store.renew(worker, [])).is_held
        finally:
            os.kill(pid, signal.SIGCONT)


async def test_a_cancelled_renewal_leaves_the_next_one_a_fresh_connection(arena: Arena) -> None:
    worker = await arena.register()
    async with arena.driver.open_heartbeat() as store:
        await store.renew(worker, [])
        async with arena.holding() as other:
            await other.connection.execute("select from outlast.worker for update")
            renewing = asyncio.create_task(store.renew(worker, []))
            pid = await heartbeat_backend(arena)
            async with asyncio.timeout(10):
                while not await arena.fetch("select where cardinality(pg_blocking_pids($1)) > 0", pid):
                    pass
            renewing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await renewing
        assert (await store.renew(worker, [])).is_held


async def test_a_registration_repeated_is_the_same_worker_until_its_lease_has_passed(arena: Arena) -> None:
    process = new_worker()
    first = await arena.driver.register_worker(process)
    assert await arena.driver.register_worker(process) == first
    await arena.advance(LEASE)
    second = await arena.driver.register_worker(process)
    assert second > first
    assert [view.id for view in await arena.driver.workers()] == [second, first]


@pytest.mark.parametrize("schema", ["user", "jobs_of_the_shop"])
async def test_every_verb_works_in_another_schema(empty_database_url: str, schema: str) -> None:
    """There is no `outlast` in this database: a verb that named it would fail."""
    await migrations.upgrade(empty_database_url, schema=schema)
    engine = create_engine(empty_database_url)
    driver = PostgresDriver(engine, schema=schema)
    await driver.open()
    worker = await driver.register_worker(new_worker())
    await driver.show_worker(worker, wakeup="listen", drain=None)
    await driver.publish_job_types([JobTypeDoc(name=NAME, code_version="1", document="{}")])
    keyed = new_job(key="k", dedupe_for=timedelta(hours=1), max_queue_time=timedelta(hours=1))
    await driver.enqueue(keyed)
    assert (await driver.enqueue(new_job(key="k"))).deduped
    await driver.enqueue_many([new_job(), new_job(run_at=(await driver.database_time()) + timedelta(hours=1))])
    first, second = await driver.claim(claim_request(worker))
    assert await driver.isolate(first.token)
    async with driver.open_heartbeat() as store:
        assert (await store.renew(worker, [first.token])).revoked == ()
        assert await store.abandon(worker, [second.token], timedelta(minutes=1)) == 1
    assert await driver.release([second.token], cause="test") == 1
    assert await driver.reconcile(worker, [first.token]) == 0
    await _settle(driver, first.token, Retried(error=ERROR, delay=timedelta()))
    assert await driver.promote() == 1
    one, two = await driver.claim(claim_request(worker))
    await _settle(driver, one.token, DeadLettered(error=ERROR, reason=DeadReason.TERMINAL))
    await driver.retry(one.token.job_id)
    assert await driver.cancel(two.token.job_id, reason="no") is CancelVerdict.SIGNALLED
    (again,) = await driver.claim(claim_request(worker))
    await _settle(driver, again.token, Completed())
    await driver.pause_queue("default", by="me")
    await driver.resume_queue("default")
    await driver.close_worker(worker)
    assert (await driver.reap(), await driver.surrender(worker), await driver.expire()) == ((), (), ())
    await _read(driver, again.token.job_id)
    assert await driver.purge(PurgeQuery(state=State.CANCELLED, older_than=timedelta())) == 1
    await driver.ping()
    await driver.close()
    await engine.dispose()


async def _settle(driver: PostgresDriver, token: ClaimToken, outcome: Completed | Retried | DeadLettered) -> None:
    assert await driver.settle([Settlement(token=token, outcome=outcome)]) == (SettleAnswer.SETTLED,)


async def _read(driver: PostgresDriver, job_id: JobId) -> None:
    """Ask everything there is to ask after the verbs above."""
    view = await driver.describe(job_id)
    assert view is not None
    assert view.state is State.DONE
    assert len(await driver.attempts(job_id)) == 2
    assert len((await driver.list(ListQuery())).items) == 3
    assert await driver.finished_among([job_id]) == {job_id}
    assert await driver.dead_letters() == ()
    assert (await driver.stats()).by_state[State.DONE] == 1
    assert [queue.name for queue in await driver.queues()] == ["default"]
    assert [worker.wakeup for worker in await driver.workers()] == ["listen"]
    assert [doc.name for doc in await driver.job_types()] == [NAME]
