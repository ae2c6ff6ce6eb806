"""What only PostgreSQL's outbox has: plans, sizes, bad rows, and looks that skip what is behind them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from app.domain.outbox import RELAY_LEASE, Pass
from app.drivers.postgres import enqueue_columns, outbox_claim, outbox_publish
from app.drivers.postgres.connect import connect
from app.drivers.postgres.outbox import PostgresOutbox
from app.drivers.postgres.outbox_looks import MARGIN, WHOLE_EVERY, Looks
from app.drivers.postgres.outbox_rows import MAX_BYTES
from app.outbox.passes import DriverPasses, Passes, SharedPasses
from tests.support.drivers import PostgresEnv, new_job, postgres_env
from tests.support.outbox import BATCH, PostgresOutboxEnv, ids, new_relay

pytestmark = pytest.mark.postgres

MANY_YEARS = timedelta(days=9_000 * 366)


@pytest.fixture
async def env(database_url: str) -> AsyncIterator[PostgresEnv]:
    async with postgres_env(database_url) as opened:
        yield opened


@pytest.fixture
async def outbox(env: PostgresEnv) -> AsyncIterator[PostgresOutboxEnv]:
    opened = PostgresOutboxEnv(env)
    yield opened
    await opened.engine.dispose()


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("statement", [outbox_publish._TAKE, outbox_claim._CLAIM], ids=["publish", "claim"])
async def test_looks_are_planned_by_state_and_time_on_empty_tables(database_url: str, statement: str) -> None:
    connection = await connect(database_url, application_name="plans")
    try:
        await connection.execute("vacuum analyze outlast.outbox")
        await connection.execute("set plan_cache_mode = force_generic_plan")
        kinds = "timestamptz, bigint" + (", uuid, interval" if "$4" in statement else "")
        values = "now(), 10" + (", gen_random_uuid(), interval '30 s'" if "$4" in statement else "")
        await connection.execute(f"prepare look({kinds}) as {statement}")
        plan = "\n".join(row[0] for row in await connection.fetch(f"explain (costs off) execute look({values})"))
    finally:
        await connection.close()
    assert "Index Scan using outbox_staged" in plan, plan
    assert "Index Cond: (staged_at >= $1)" in plan, plan
    assert "Seq Scan on outbox" not in plan, plan


async def test_one_bad_value_quarantines_its_row_and_leaves_the_others(outbox: PostgresOutboxEnv) -> None:
    right = [await outbox.staged() for _ in range(3)]
    wrong = await outbox.staged(deadline=MANY_YEARS)  # ends after the last year a client can read
    done = await outbox.publish()
    assert (done.published, ids(done.quarantined)) == (3, [wrong])
    assert all([await outbox.is_there(job_id) for job_id in right])
    assert (await outbox.view()).items[0].code == "REQUEST_INVALID"
    assert await outbox.publish() == Pass()


@pytest.mark.parametrize("way", ["publish", "claim"])
async def test_a_row_that_nobody_foresaw_is_put_aside_and_the_others_are_published(
    env: PostgresEnv, outbox: PostgresOutboxEnv, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    wrong = await outbox.staged(tags=("odd",))
    right = [await outbox.staged() for _ in range(3)]

    def array(values: tuple[str, ...]) -> str:
        raise AttributeError("no such thing")

    monkeypatch.setattr(enqueue_columns, "_array", array)
    done = await passes_of(way, env, outbox).once(BATCH)
    assert (done.published, ids(done.quarantined)) == (3, [wrong])
    assert all([await outbox.is_there(job_id) for job_id in right])
    (item,) = (await outbox.view()).items
    assert (item.code, item.message) == ("INTERNAL", "publishing it ended with AttributeError: no such thing")


@pytest.mark.parametrize("way", ["publish", "claim"])
async def test_a_row_that_is_refused_with_a_code_of_no_known_meaning_is_put_aside(
    env: PostgresEnv, outbox: PostgresOutboxEnv, way: str
) -> None:
    wrong = await outbox.staged(queue="odd")
    await outbox.staged()
    async with outbox.engine.begin() as connection:
        await connection.exec_driver_sql(
            "create function refuse() returns trigger language plpgsql as"
            " $$ begin raise exception 'no' using errcode = 'ZZ123'; end $$"
        )
        await connection.exec_driver_sql(
            "create trigger refuse before insert on outlast.job for each row when (new.queue = 'odd')"
            " execute function refuse()"
        )
    done = await passes_of(way, env, outbox).once(BATCH)
    assert (done.published, ids(done.quarantined)) == (1, [wrong])


def passes_of(way: str, env: PostgresEnv, outbox: PostgresOutboxEnv) -> Passes:
    return SharedPasses(outbox.store) if way == "publish" else DriverPasses(outbox.store, env.driver, new_relay())


@pytest.mark.parametrize(
    "odd",
    [
        "tags = array['a', null]",
        "tags = array[array['a'], array['b']]",
        "deadline = '10001 years'",
        "dedupe_for = '-1 second'",
        "max_queue_time = '170000000 years'",
        "timeout_ms = 9223372036854775807",
        "timeout_ms = 0",
    ],
)
async def test_a_row_that_no_relay_could_read_cannot_be_written(outbox: PostgresOutboxEnv, odd: str) -> None:
    await outbox.staged(tags=("a", "b"), timeout=timedelta(seconds=1))
    async with outbox.engine.begin() as connection:
        with pytest.raises(DBAPIError, match=r"check constraint|multidimensional"):
            await connection.exec_driver_sql(f"update outlast.outbox set {odd}")
    assert (await outbox.publish()).published == 1


async def test_many_rows_with_one_key_cost_no_statement_each(env: PostgresEnv, outbox: PostgresOutboxEnv) -> None:
    await outbox.stage(*(new_job(key="debounced") for _ in range(200)))
    asked: list[str] = []
    database = env.driver._db  # type: ignore[attr-defined] # the driver's database
    raw = database.raw

    @asynccontextmanager
    async def listening() -> AsyncIterator[Any]:
        async with raw() as conn:
            conn.add_query_logger(lambda record: asked.append(record.query))
            yield conn

    database.raw = listening
    done = await outbox.publish(500)
    assert (done.published, done.deduped) == (1, 199)
    assert len(asked) < 15


@pytest.mark.parametrize("way", ["publish", "claim"])
async def test_a_pass_holds_a_bounded_number_of_bytes(env: PostgresEnv, outbox: PostgresOutboxEnv, way: str) -> None:
    payload = '{"text": "' + "x" * (MAX_BYTES // 4) + '"}'
    await outbox.stage(*(new_job(payload=payload) for _ in range(6)))
    passes = passes_of(way, env, outbox)
    assert await passes.once(BATCH) == Pass(published=4, is_full=True)
    assert await passes.once(BATCH) == Pass(published=2)


async def test_a_row_larger_than_a_pass_is_taken_alone(outbox: PostgresOutboxEnv) -> None:
    payload = '{"text": "' + "x" * (MAX_BYTES + 1) + '"}'
    await outbox.stage(new_job(payload=payload), new_job(payload=payload))
    assert await outbox.publish() == Pass(published=1, is_full=True)
    assert await outbox.publish() == Pass(published=1)


async def test_a_row_that_commits_long_after_it_was_staged_is_found_by_the_next_whole_look(
    env: PostgresEnv, outbox: PostgresOutboxEnv
) -> None:
    clock = Clock()
    store = PostgresOutbox(env.driver._db)  # type: ignore[attr-defined] # the driver's database
    store._looks = Looks(clock)
    late = new_job()
    async with outbox.transaction() as transaction:
        await outbox.store.stage(transaction, [late])
        await env.advance(MARGIN + timedelta(seconds=1))
        assert await store.publish(BATCH) == Pass()  # a whole look
    assert await store.publish(BATCH) == Pass()  # begins after the row was staged
    await outbox.staged()
    assert await store.publish(BATCH) == Pass(published=1)
    clock.now += WHOLE_EVERY.total_seconds()
    assert await store.publish(BATCH) == Pass(published=1)
    assert await outbox.is_there(late.id)


async def test_a_row_that_commits_soon_after_it_was_staged_is_found_at_once(
    env: PostgresEnv, outbox: PostgresOutboxEnv
) -> None:
    store = PostgresOutbox(env.driver._db)  # type: ignore[attr-defined] # the driver's database
    store._looks = Looks(Clock())
    async with outbox.transaction() as transaction:
        await outbox.store.stage(transaction, [new_job()])
        await env.advance(MARGIN - timedelta(seconds=1))
        assert await store.publish(BATCH) == Pass()
    assert await store.publish(BATCH) == Pass(published=1)


async def test_rows_that_are_staged_again_are_found_at_once(env: PostgresEnv, outbox: PostgresOutboxEnv) -> None:
    store = PostgresOutbox(env.driver._db)  # type: ignore[attr-defined] # the driver's database
    store._looks = Looks(Clock())
    await outbox.staged()
    await outbox.store.claim(new_relay(), BATCH)
    await env.advance(RELAY_LEASE)
    assert await store.publish(BATCH) == Pass()
    assert await store.recover() == 1
    assert await store.publish(BATCH) == Pass(published=1)


async def test_rows_that_are_handed_back_are_found_at_once(env: PostgresEnv, outbox: PostgresOutboxEnv) -> None:
    store, relay = PostgresOutbox(env.driver._db), new_relay()  # type: ignore[attr-defined] # the driver's database
    store._looks = Looks(Clock())
    await outbox.staged()
    await env.advance(MARGIN + timedelta(seconds=1))
    assert len((await store.claim(relay, BATCH)).rows) == 1
    assert await store.publish(BATCH) == Pass()
    assert await store.release(relay) == 1
    assert await store.publish(BATCH) == Pass(published=1)


async def test_a_pinned_snapshot_does_not_make_looks_dearer(
    env: PostgresEnv, outbox: PostgresOutboxEnv, database_url: str
) -> None:
    """Read off the index entries a look walks: pages it touches, not time."""
    store = PostgresOutbox(env.driver._db)  # type: ignore[attr-defined] # the driver's database
    store._looks = Looks(Clock())
    pin = await connect(database_url, application_name="pin")
    watcher = await connect(database_url, application_name="watcher")
    try:
        await store.publish(BATCH)
        await pin.execute("begin isolation level repeatable read")
        await pin.fetchval("select count(*) from outlast.outbox")
        touched = []
        for _ in range(12):
            await outbox.stage(*(new_job() for _ in range(500)))
            await env.advance(timedelta(seconds=5))
            plan = f"explain (analyze, buffers, timing off, format json) {outbox_publish._TAKE}"
            look = store._looks._since.isoformat()
            sql = plan.replace("$1", f"timestamptz '{look}'").replace("$2", "500")
            row = await watcher.fetchval(sql)
            touched.append(_blocks(row))
            while (await store.publish(500)).is_full:
                pass
        assert touched[-1] <= 2 * touched[1], touched
    finally:
        await watcher.close()
        await pin.close()


def _blocks(plan: str) -> int:
    root = json.loads(plan)[0]["Plan"]
    return int(root["Shared Hit Blocks"]) + int(root["Shared Read Blocks"])
