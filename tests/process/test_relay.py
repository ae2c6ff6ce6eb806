"""Relays as processes: they publish, leave in order, die without harm, and are looked at from the command line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from app.domain.job import JobId
from app.drivers.postgres.database import create_engine
from tests.process.conftest import Outlast
from tests.support.drivers import new_job
from tests.support.processes import Fleet, client_of, eventually
from tests.support.store import Store, store_on

pytestmark = [pytest.mark.process, pytest.mark.timeout(90)]


@pytest.fixture
async def callers(database_url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(create_engine(database_url).url)
    yield engine
    await engine.dispose()


async def stage(store: Store, engine: AsyncEngine, count: int = 1, payload: str = "{}") -> list[JobId]:
    jobs = [new_job("faults.note", payload=payload) for _ in range(count)]
    async with AsyncSession(engine) as session, session.begin():
        await store.driver.outbox.stage(session, jobs)
    return [job.id for job in jobs]


async def published(store: Store, jobs: list[JobId]) -> bool:
    return all([await store.driver.describe(job_id) is not None for job_id in jobs])


async def test_a_relay_publishes_and_leaves_with_zero(fleet: Fleet, store: Store, callers: AsyncEngine) -> None:
    relay = await fleet.relay().ready()
    jobs = await stage(store, callers, 20)
    await eventually(lambda: published(store, jobs), "the jobs are published")
    metrics = await relay.metrics()
    assert metrics[("outlast_outbox_rows_total", (("end", "published"),))] == 20
    assert ("outlast_outbox_lag_seconds", ()) in metrics
    relay.terminate()
    assert await relay.gone() == 0
    assert relay.said("relay.started")
    assert relay.said("relay.stopped")


async def test_a_relay_beside_a_worker_runs_the_job(fleet: Fleet, store: Store, callers: AsyncEngine) -> None:
    service = await fleet.run("--roles", "api,worker,relay").ready()
    (job_id,) = await stage(store, callers)
    await eventually(lambda: published(store, [job_id]), "the job is published")
    async with client_of(service) as client:
        assert (await client.get("/v1/outbox")).json()["staged"]["value"] == 0
        assert (await client.get(f"/v1/jobs/{job_id}")).status_code == 200
    service.terminate()
    assert await service.gone() == 0


async def test_killed_relays_lose_and_double_nothing(fleet: Fleet, store: Store, callers: AsyncEngine) -> None:
    jobs = await stage(store, callers, 2_000)
    for _ in range(3):
        relay = await fleet.relay().ready()
        jobs += await stage(store, callers, 300)
        relay.kill()
    last = await fleet.relay().ready()
    await eventually(lambda: published(store, jobs[-1:]), "the last job is published")
    await eventually(lambda: published(store, jobs), "every job is published")
    last.terminate()
    assert await last.gone() == 0
    async with callers.connect() as connection:
        found = await connection.exec_driver_sql("select count(*), count(distinct id) from outlast.job")
        assert found.one() == (len(jobs), len(jobs))


async def test_another_database_is_relayed_into_that_of_the_jobs(
    fleet: Fleet, store: Store, make_database: Callable[..., str]
) -> None:
    url = make_database()
    callers = create_async_engine(create_engine(url).url)
    relays = [await fleet.relay(OUTLAST_OUTBOX_URL=url).ready() for _ in range(2)]
    jobs = await stage(store, callers, 1_200)
    relays[0].kill()
    await eventually(lambda: published(store, jobs), "every job is published", within=60)
    relays[1].terminate()
    assert await relays[1].gone() == 0
    await callers.dispose()


async def test_a_database_without_an_outbox_refuses_the_start(fleet: Fleet, make_database: Callable[..., str]) -> None:
    relay = fleet.relay(OUTLAST_OUTBOX_URL=make_database(migrated=False))
    assert await relay.gone() == 78
    assert "migrate up --db" in relay.text


async def stage_right_and_wrong(url: str) -> tuple[JobId, JobId]:
    """Stage a job that is published, and one that is refused."""
    callers = create_async_engine(create_engine(url).url)
    async with store_on(url) as store:
        (right,) = await stage(store, callers)
        (wrong,) = await stage(store, callers, payload="{")
        await store.driver.outbox.publish(100)
        assert await published(store, [right])
    await callers.dispose()
    return right, wrong


def test_the_command_line_shows_the_outbox_and_replays(outlast: Outlast, database_url: str) -> None:
    _, wrong = asyncio.run(stage_right_and_wrong(database_url))
    outlast.on(database_url)
    shown = outlast("outbox", "status", "--json").document()
    assert shown["quarantined"] == {"value": 1, "capped": False}
    text = outlast("outbox", "status").out
    assert f"{wrong}  faults.note  JSON_INVALID" in text
    assert "staged 0, claimed 0" in text
    assert "1 staged again" in outlast("outbox", "replay", str(wrong)).err
    assert "staged 1, claimed 0, the oldest for " in outlast("outbox", "status").out
    outlast("outbox", "replay", str(wrong), code=4)
    outlast("outbox", "replay", code=2)
    outlast("outbox", "replay", "--all", "--may-double", code=2)
    outlast("outbox", "replay", "nonsense", code=2)
    assert "0 staged again" in outlast("outbox", "replay", "--all").err


class Ids(NamedTuple):
    """Ids that were given out at staging, and the job that the key of one led to."""

    waiting: str
    refused: str
    folded: str
    holder: str


async def stage_three(url: str) -> Ids:
    callers = create_async_engine(create_engine(url).url)
    async with store_on(url) as store:
        holder, folded = [new_job("faults.note", key="order:1") for _ in range(2)]
        await store.driver.enqueue(holder)
        async with AsyncSession(callers) as session, session.begin():
            await store.driver.outbox.stage(session, [folded])
        (refused,) = await stage(store, callers, payload="{")
        await store.driver.outbox.publish(100)
        (waiting,) = await stage(store, callers)
    await callers.dispose()
    return Ids(*map(str, (waiting, refused, folded.id, holder.id)))


def test_the_command_line_says_where_a_staged_id_leads(outlast: Outlast, database_url: str) -> None:
    ids = asyncio.run(stage_three(database_url))
    outlast.on(database_url)
    for verb in ("show", "cancel", "retry"):
        assert "staged and not published" in outlast("jobs", verb, ids.waiting, code=4).err
        refused = outlast("jobs", verb, ids.refused, code=4).err
        assert "JSON_INVALID" in refused
        assert f"`outlast outbox replay {ids.refused}`" in refused
    shown = outlast("jobs", "show", ids.folded, "--json")
    assert (shown.document()["id"], ids.holder in shown.err) == (ids.holder, True)
    for verb in ("cancel", "retry"):
        assert f"fix: use {ids.holder}" in outlast("jobs", verb, ids.folded, code=4).err
    assert outlast("jobs", "show", ids.holder, "--json").document()["state"] == "ready"


def test_the_command_line_asks_the_outbox_of_another_database_only_about_ids_without_a_job(
    outlast: Outlast, database_url: str, make_database: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = make_database()
    ids = asyncio.run(stage_three(elsewhere))
    own = asyncio.run(stage_three(database_url))
    outlast.on(database_url)
    monkeypatch.setenv("OUTLAST_OUTBOX_URL", elsewhere)
    assert "staged and not published" in outlast("jobs", "show", ids.waiting, code=4).err
    assert "JSON_INVALID" in outlast("jobs", "cancel", ids.refused, code=4).err
    monkeypatch.setenv("OUTLAST_OUTBOX_URL", "postgresql://nobody@127.0.0.1:1/nothing")
    assert outlast("jobs", "show", own.holder, "--json").document()["id"] == own.holder
    assert outlast("jobs", "cancel", own.holder).err.strip() == "cancelled_before_start"
    assert "DRIVER_UNAVAILABLE" in outlast("jobs", "show", ids.waiting, code=69).err
