"""A server that answers and does not serve: it only reads, recovers, starts, or ends every session it has.

To the worker each is an outage like any other: what runs is told once its lease is over, nothing is charged, nobody
has to restart anything, and no connection of that time is used after it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import httpx
import pytest

from app.cli.devdb import DevPostgres
from app.domain.errors import DriverUnavailable
from app.domain.job import JobId
from tests.faults.history import audit, check
from tests.support.outage import as_administrator, nothing_counted, one_job_a_key, producing, running, service_on
from tests.support.processes import Fleet, Service, client_of, eventually
from tests.support.store import Store, job_id_of

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(120)]

WORKERS = 2
ROUNDS = 5
_OURS = "datname = current_database() and application_name like 'outlast%'"


@asynccontextmanager
async def _writes_refused(server: DevPostgres) -> AsyncIterator[None]:
    """Let the server refuse every write, 25006, on the sessions that are there as on new ones."""
    await as_administrator(server, "alter system set default_transaction_read_only = on", "select pg_reload_conf()")
    yield
    await as_administrator(server, "alter system reset default_transaction_read_only", "select pg_reload_conf()")


@asynccontextmanager
async def _recovers(server: DevPostgres, *, reads: bool) -> AsyncIterator[None]:
    """Put a standby in the server's place, and promote it: until then it only reads, or takes no connections, 57P03."""
    await as_administrator(server, f"alter system set hot_standby = {'on' if reads else 'off'}")
    await asyncio.to_thread(server.stop, "immediate")
    _put(server, "standby.signal")
    starting = asyncio.create_task(asyncio.to_thread(server.start))  # it is ready once it is promoted
    try:
        await eventually(lambda: _is_standby(server, reads=reads), "the standby is there")
        yield
    finally:
        _put(server, "promote")
        assert server.pid is not None
        os.kill(server.pid, signal.SIGUSR1)
        await starting


def _put(server: DevPostgres, name: str) -> None:
    path = server.cluster.data / name
    path.touch()
    server.cluster.account.owns(path)


async def _is_standby(server: DevPostgres, *, reads: bool) -> bool:
    try:
        ((in_recovery,),) = await as_administrator(server, "select pg_is_in_recovery()")
    except asyncpg.CannotConnectNowError as error:
        return not reads and "Hot standby mode is disabled" in (error.detail or "")
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return False
    return bool(in_recovery)


@asynccontextmanager
async def _refused(server: DevPostgres, how: str) -> AsyncIterator[None]:
    refusing = _writes_refused(server) if how == "read-only" else _recovers(server, reads=how == "standby")
    async with refusing:
        yield


@pytest.mark.long
async def test_a_server_that_does_not_serve_for_leases_is_waited_for_and_charges_nobody(
    own_postgres: DevPostgres, folder: Path
) -> None:
    """A worker that starts while a standby stands in waits for the server, too."""
    async with service_on(own_postgres, folder) as (fleet, store):
        await audit(store)
        workers = [await fleet.worker().ready() for _ in range(WORKERS)]
        api = await fleet.api().ready()
        jobs = []
        async with producing(store) as producer, client_of(api) as client:
            for how in ("read-only", "standby", "starting"):
                held = await running(fleet, store, [f"after {how}"])
                stubborn = await running(fleet, store, [f"during {how}"], heed=False)
                async with _refused(own_postgres, how):
                    if how == "standby":
                        workers.append(fleet.worker())
                    fleet.ledger.open(f"during {how}")
                    await asyncio.gather(
                        _refuses(client, reads=held[0] if how != "starting" else None), _are_told(fleet, held)
                    )
                fleet.ledger.open(f"after {how}")
                await store.until(await _enqueue(client))
                jobs += held + stubborn
        jobs += producer.acked.values()
        await nothing_counted(store, jobs)
        await one_job_a_key(store, producer)
        await workers[-1].ready()
        await _leave([*workers, api])
        await check(store, fleet.ledger.events(), acked=jobs)


async def test_sessions_ended_again_and_again_are_replaced_and_their_jobs_go_on(fleet: Fleet, store: Store) -> None:
    """57P01, also for the listening session and the heartbeat's."""
    await store.publish()
    workers = [await fleet.worker().ready() for _ in range(WORKERS)]
    api = await fleet.api().ready()
    held = await running(fleet, store, ["after"])
    ended: set[int] = set()
    async with producing(store) as producer, client_of(api) as client:
        for _ in range(ROUNDS):
            rows = await store.fetch(f"select pid, pg_terminate_backend(pid) from pg_stat_activity where {_OURS}")
            ended |= {row["pid"] for row in rows}
            await store.until(await _enqueue(client))
        await eventually(lambda: _listen_again(store, ended), "both workers listen again")
    fleet.ledger.open("after")
    jobs = [*held, *producer.acked.values()]
    await nothing_counted(store, jobs)
    there = {row["pid"] for row in await store.fetch(f"select pid from pg_stat_activity where {_OURS}")}
    assert there
    assert not there & ended, "ended sessions are gone"
    await _leave([*workers, api])
    await check(store, fleet.ledger.events(), acked=jobs)


async def _refuses(client: httpx.AsyncClient, *, reads: JobId | None) -> None:
    """See the API refuse a write as it should, with a code and a time to come back, and go on reading if it can."""
    refused = await client.post("/v1/jobs", json={"name": "faults.hold", "payload": {}})
    assert refused.status_code == 503, refused.text
    assert refused.json()["code"] == DriverUnavailable.code
    assert "retry-after" in refused.headers
    if reads is not None:

        async def answers_again() -> bool:
            return (await client.get(f"/v1/jobs/{reads}")).status_code == httpx.codes.OK

        await eventually(answers_again, "what only reads is answered")


async def _enqueue(client: httpx.AsyncClient) -> JobId:
    """Enqueue over HTTP, again as long as the answer is 503."""
    answer = await client.post("/v1/jobs", json={"name": "faults.hold", "payload": {}})
    while answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
        await asyncio.sleep(0.1)
        answer = await client.post("/v1/jobs", json={"name": "faults.hold", "payload": {}})
    assert answer.status_code == httpx.codes.CREATED, answer.text
    return job_id_of(answer.json()["id"])


async def _are_told(fleet: Fleet, jobs: Sequence[JobId]) -> None:
    mine = {str(job_id) for job_id in jobs}

    def told() -> set[str | None]:
        return {event.job for event in fleet.ledger.events("told") if event.detail["reason"] == "lease_lost"}

    await eventually(lambda: told() >= mine, "what runs is told that its lease is over")


async def _listen_again(store: Store, ended: AbstractSet[int]) -> bool:
    rows = await store.fetch(f"select pid from pg_stat_activity where {_OURS} and application_name = 'outlast listen'")
    return len({row["pid"] for row in rows} - ended) >= WORKERS


async def _leave(services: Sequence[Service]) -> None:
    for service in services:
        assert service.code is None, "no restart is needed"
        service.terminate()
    for service in services:
        assert await service.gone() == 0
