"""What a test does to a database of its own, and what it measures of the processes on it meanwhile.

A producer that repeats what did not come back, under the key it came with; the ways in which a server goes away; the
processor time a process takes and the lines it says. Used by tests of outages.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import asyncpg

from app.cli.devdb import DevPostgres
from app.domain.errors import DriverUnavailable
from app.domain.job import JobId
from app.domain.outcome import OutcomeKind
from app.domain.state import State
from tests.support.postgres import migrate
from tests.support.processes import Fleet, Service, eventually, fleet_on
from tests.support.store import Store, store_on

_COMPLAINS = {"warning", "error"}


@asynccontextmanager
async def service_on(server: DevPostgres, folder: Path) -> AsyncIterator[tuple[Fleet, Store]]:
    """Give processes, and the store beside them, on a server that the test may do anything to."""
    url = server.dsn()
    await migrate(url)
    with fleet_on(url, folder) as fleet:
        async with store_on(url) as store:
            await store.publish()
            yield fleet, store


async def as_administrator(server: DevPostgres, *statements: str) -> list[asyncpg.Record]:
    """Run statements on a connection of its own, which writes whatever the server's default is; gives the last rows."""
    connection = await asyncpg.connect(server.dsn(scheme="postgresql"))
    try:
        await connection.execute("set default_transaction_read_only = off")
        found: list[asyncpg.Record] = []
        for statement in statements:
            found = await connection.fetch(statement)
        return found
    finally:
        await connection.close()


async def answers(server: DevPostgres) -> bool:
    """Say whether a server takes connections and answers a question."""
    try:
        await as_administrator(server, "select 1")
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
        return False
    return True


async def kill_backend(server: DevPostgres, application_name: str) -> None:
    """Kill one session's process outright: the server ends all the others, too, and recovers by itself.

    Waits for the session: who lost it in an outage before may not be back yet.
    """
    victims: list[int] = []

    async def is_there() -> bool:
        rows = await as_administrator(
            server, f"select pid from pg_stat_activity where application_name = '{application_name}'"
        )
        victims.extend(row["pid"] for row in rows)
        return bool(victims)

    await eventually(is_there, f"a session is called {application_name!r}")
    os.kill(victims[0], signal.SIGKILL)


# --- jobs across an outage --------------------------------------------------------------------------------------------


class Producer:
    """Enqueues a job every so often, each under a key; one whose enqueue did not come back is repeated under its key.

    `acked` has the id that each key was answered with, `unanswered` how many calls did not come back.
    """

    def __init__(self, store: Store, *, name: str = "faults.hold", every: float = 0.1) -> None:
        self._store = store
        self._name = name
        self._every = every
        self.acked: dict[str, JobId] = {}
        self.unanswered = 0
        self.is_over = False

    async def run(self) -> None:
        """Produce until told that it is over."""
        numbers = count()
        while not self.is_over:
            key = f"produced-{next(numbers)}"
            while key not in self.acked:
                try:
                    self.acked[key] = await self._store.enqueue(self._name, idempotency_key=key)
                except DriverUnavailable:
                    self.unanswered += 1
                await asyncio.sleep(self._every)


@asynccontextmanager
async def producing(store: Store) -> AsyncIterator[Producer]:
    """Produce while the context is open; every key has an answer when it closes."""
    producer = Producer(store)
    async with asyncio.TaskGroup() as group:
        group.create_task(producer.run())
        try:
            yield producer
        finally:
            producer.is_over = True


async def running(fleet: Fleet, store: Store, gates: Sequence[str], *, heed: bool = True) -> list[JobId]:
    """Start a body on the loop and one in a thread at each gate, and come back once all run."""
    names = ("faults.hold", "faults.hold_sync")
    jobs = [await store.enqueue(name, {"gate": gate, "heed": heed}) for gate in gates for name in names]
    mine = {str(job_id) for job_id in jobs}

    def begun() -> int:
        return len({event.job for event in fleet.ledger.events("effect") if event.job in mine})

    await eventually(lambda: begun() == len(jobs), "all run")
    return jobs


async def nothing_counted(store: Store, jobs: Sequence[JobId]) -> None:
    """Wait for jobs, and hold that none was charged for anything but its own, successful, attempt."""
    for view in await store.all_until(jobs):
        assert view.state is State.DONE
        attempts = await store.attempts(view.id)
        assert (view.counters.attempt, view.counters.crashes) == (1, 0), attempts
        assert [a.outcome for a in attempts if a.counted] == [OutcomeKind.COMPLETED], attempts
        assert {a.outcome for a in attempts} <= {OutcomeKind.LEASE_LOST, OutcomeKind.COMPLETED}, attempts


async def one_job_a_key(store: Store, producer: Producer) -> None:
    """Hold that a repeated enqueue made no second job: a produced job for each key, and no other."""
    rows = await store.fetch("select id from outlast.job where id = any($1::uuid[])", list(producer.acked.values()))
    assert len(rows) == len(producer.acked) == len(set(producer.acked.values()))


# --- processes meanwhile ----------------------------------------------------------------------------------------------


class Meter:
    """What a process takes and says from now on."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._said = len(service.text)
        self._cpu = _cpu_seconds(service.pid)

    @property
    def cpu_seconds(self) -> float:
        """Give the processor time taken."""
        return _cpu_seconds(self._service.pid) - self._cpu

    def complaints(self) -> Counter[str]:
        """Count its warnings and errors, by what they are about."""
        lines = [json.loads(line) for line in self._service.text[self._said :].splitlines() if line.startswith("{")]
        return Counter(f"{line['event']} {line.get('verb', '')}" for line in lines if line["level"] in _COMPLAINS)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = int(fields[11]), int(fields[12])  # fields 14 and 15 of the file; the name may hold blanks
    return (user + system) / os.sysconf("SC_CLK_TCK")
