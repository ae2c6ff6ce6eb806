"""A deadlock is counted and shown with both of its statements, so that one that is met once can be understood."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from app.drivers.postgres.connect import dsn_of
from tests.postgres.arena import Arena
from tests.support.deadlocks import Deadlocks, deadlocks_in

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(60)]

_LOG = """\
2026-11-30 10:00:00.000 UTC [7] LOG:  process 7 detected deadlock while waiting for ShareLock after 1000 ms
2026-11-30 10:00:00.001 UTC [7] ERROR:  deadlock detected
2026-11-30 10:00:00.001 UTC [7] DETAIL:  Process 7 waits for ShareLock on transaction 1; blocked by process 8.
\tProcess 8 waits for ShareLock on transaction 2; blocked by process 7.
\tProcess 7: update a
\tProcess 8: update b
2026-11-30 10:00:00.001 UTC [7] HINT:  See server log for query details.
2026-11-30 10:00:00.001 UTC [7] STATEMENT:  update a
2026-11-30 10:00:00.002 UTC [8] ERROR:  canceling statement due to user request
2026-11-30 10:00:00.002 UTC [8] STATEMENT:  update c
"""


def test_an_entry_of_the_log_is_taken_whole_and_nothing_else() -> None:
    (entry,) = deadlocks_in(_LOG)
    assert entry.splitlines() == _LOG.splitlines()[1:8]


async def _one_then_the_other(url: str, first: int, second: int, met: asyncio.Barrier) -> None:
    connection = await asyncpg.connect(dsn_of(url))
    try:
        async with connection.transaction():
            await connection.execute(f"select 'the way of {first}' from pair where id = {first} for update")
            await met.wait()
            await connection.execute(f"select 'the way to {second}' from pair where id = {second} for update")
    finally:
        await connection.close()


async def test_a_deadlock_that_somebody_repeated_is_shown_with_both_statements(arena: Arena, database_url: str) -> None:
    deadlocks = Deadlocks(arena.fetch)
    await deadlocks.none()
    await arena.execute_all("create table pair(id int primary key); insert into pair values (1), (2)")
    met = asyncio.Barrier(2)
    ways = (_one_then_the_other(database_url, 1, 2, met), _one_then_the_other(database_url, 2, 1, met))
    ended = await asyncio.gather(*ways, return_exceptions=True)
    (error,) = (each for each in ended if each is not None)
    assert isinstance(error, asyncpg.exceptions.DeadlockDetectedError)
    with pytest.raises(AssertionError) as shown:
        await deadlocks.none()
    assert "1 deadlocks" in str(shown.value)
    for statement in ("the way to 1", "the way to 2"):
        assert statement in str(shown.value) or "not at hand" in str(shown.value)
