"""What an idle worker costs the database: every statement it sends, on whatever connection, counted by heartbeats.

The intervals are those of production divided by one number, so that the count between two heartbeats is production's;
how fast the machine is does not enter. The ping of the listening connection is not scaled: its share is added.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.postgres.listen import PING_INTERVAL
from app.jobs.handle import job
from app.worker.options import WorkerOptions
from tests.roles.harness import working
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.postgres

USUAL = WorkerOptions()
_FASTER = 50
_HEARTBEATS = 25


@job("idle.job")
async def idle() -> None: ...


class Wire:
    """Every statement of this process, as asyncpg tells of it."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self._beat = asyncio.Event()

    @property
    def heartbeats(self) -> int:
        """Give how many renewals were sent."""
        return sum("renewed_at = " in sql and "lease_until > " in sql for sql in self.statements)

    def opening(self, connect: Callable[..., Any]) -> Callable[..., Any]:
        """Give `connect`, its connections listened to."""

        async def connected(*args: Any, **kwargs: Any) -> Any:
            connection = await connect(*args, **kwargs)
            connection.add_query_logger(self._saw)
            return connection

        return connected

    async def hears(self, heartbeats: int) -> None:
        """Wait for so many heartbeats from now."""
        until = self.heartbeats + heartbeats
        async with asyncio.timeout(PATIENCE):
            while self.heartbeats < until:
                await asyncio.sleep(0.01)

    def _saw(self, record: Any) -> None:
        self.statements.append(record.query)


def faster(options: WorkerOptions) -> WorkerOptions:
    """Give the options with every interval divided."""
    return WorkerOptions(
        lease=options.lease / _FASTER,
        heartbeat=options.heartbeat / _FASTER,
        sweep=options.sweep / _FASTER,
        poll=timedelta(seconds=options.poll_seconds(is_listening=True)) / _FASTER,
        stats_every=options.stats_every / _FASTER,
    )


async def test_an_idle_worker_sends_at_most_one_statement_a_second(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = Wire()
    monkeypatch.setattr(asyncpg, "connect", wire.opening(asyncpg.connect))
    driver = PostgresDriver(create_engine(database_url, pool_size=4), owns_engine=True)
    async with working(idle, driver=driver, options=faster(USUAL)):
        await wire.hears(3)
        wire.statements.clear()
        await wire.hears(_HEARTBEATS)
        sent = list(wire.statements)
    await driver.close()
    seconds = _HEARTBEATS * USUAL.heartbeat.total_seconds()
    pings = seconds / PING_INTERVAL.total_seconds()
    assert len(sent) + pings <= seconds, sorted(sql.split("\n")[0][:60] for sql in sent)
