"""The database goes away under a step's transaction: nobody's failure, and what it wrote is there once, or not at all.

In mid-statement, between two statements, before it begins, and under its commit, whose reply never comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from app.cli.devdb import DevPostgres
from app.domain.errors import DriverUnavailable
from app.domain.retry import RetryPolicy
from app.jobs.context import JobContext
from app.jobs.handle import job
from tests.roles.test_worker_postgres import at
from tests.support.postgres import migrate
from tests.support.proxy import Held, proxy_to

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(120)]

ONCE = RetryPolicy(max_attempts=1, backoff=timedelta(milliseconds=20), jitter="none")
_INSERT = text("insert into public.booking values (1)")
_SLOW = text("select pg_sleep(30)")


@dataclass(kw_only=True)
class Block:
    """What goes on in a transaction: `does` is called in its first run."""

    does: Callable[[AsyncSession], Awaitable[object]]
    runs: list[int] = field(default_factory=list)
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How it went: rows written, claims whose block ran, counted attempts, and the ledger by outcome and cause."""

    rows: int
    runs: list[int]
    attempt: int
    ledger: list[tuple[str, str, bool]]


async def _rows(url: str) -> int:
    engine = create_async_engine(url)
    async with engine.begin() as connection:
        count: int = (await connection.execute(text("select count(*) from public.booking"))).scalar_one()
    await engine.dispose()
    return count


async def _prepare(url: str) -> None:
    engine = create_async_engine(url)
    async with engine.begin() as connection:
        await connection.execute(text("create table public.booking (n int)"))
    await engine.dispose()


async def _carried(url: str, block: Block, hits: Callable[[], Awaitable[object]], *, of: str | None = None) -> Ended:
    """Run one job that has one attempt, over `of` if that is another way to the database, hit in its block."""

    @job("book.job", retry=ONCE)
    async def book(ctx: JobContext) -> str:
        async with ctx.step.transaction("book") as session:
            block.runs.append(ctx.claim_no)
            await session.execute(_INSERT)
            if len(block.runs) == 1:
                block.reached.set()
                await block.does(session)
        return await ctx.step.run("after", lambda: "done")

    await _prepare(url)
    async with at(of or url, book) as bench:
        job_id = await bench.enqueue("book.job", max_attempts=1)
        await block.reached.wait()
        await hits()
        await bench.until("attempt.completed", job_id)
        view, ledger = await bench.view(job_id), await bench.ledger(job_id)
        assert view.result == '"done"'
        return Ended(
            rows=await _rows(url),
            runs=block.runs,
            attempt=view.counters.attempt,
            ledger=[(one.outcome.value, one.cause, one.counted) for one in ledger],
        )


CUT = [("interrupted", "outage", False)]


@pytest.mark.parametrize("mode", ["immediate", pytest.param("fast", marks=pytest.mark.long)])
@pytest.mark.parametrize("when", ["mid-statement", "between statements", "at the end"])
async def test_a_restart_of_the_database_under_a_transaction_counts_no_attempt(
    own_postgres: DevPostgres, mode: Literal["fast", "immediate"], when: str
) -> None:
    async def works(session: AsyncSession) -> None:
        if when == "mid-statement":
            await session.execute(_SLOW)
        await block.goes_on.wait()
        if when == "between statements":
            await session.execute(_INSERT)

    async def restart() -> None:
        await asyncio.to_thread(own_postgres.restart, mode)
        block.goes_on.set()

    block = Block(does=works)
    await migrate(own_postgres.dsn())
    ended = await _carried(own_postgres.dsn(), block, restart)
    assert ended == Ended(rows=1, runs=[1, 2], attempt=1, ledger=CUT)


@dataclass(eq=False, kw_only=True)
class Commit(Held):
    """Catches the commit that follows the record of a transaction: a worker's maintenance commits, too."""

    is_next: bool = False

    def wants(self, sql: str, *, is_reply: bool) -> bool:
        """Say whether this is the one."""
        self.is_next = self.is_next or self.marker in sql
        return self.is_next and self.times > 0 and self.is_reply == is_reply and sql.startswith("COMMIT")


@asynccontextmanager
async def _held(url: str, folder: Path, *, is_reply: bool) -> AsyncIterator[tuple[str, Held]]:
    """Give a way to the database on which the commit of a transaction is held."""
    async with proxy_to(url, folder) as proxy:
        rule = Commit(marker='insert into "outlast".step(', is_reply=is_reply, times=1)
        proxy._rules.append(rule)
        yield proxy.url, rule


@pytest.mark.parametrize("is_reply", [True, False], ids=["reply", "call"])
async def test_a_commit_that_was_cut_off_is_looked_up(database_url: str, folder: Path, is_reply: bool) -> None:
    async def lose() -> None:
        await rule.until_caught()
        assert await _rows(database_url) == is_reply
        rule.lose()

    block = Block(does=lambda _: asyncio.sleep(0))
    async with _held(database_url, folder, is_reply=is_reply) as (url, rule):
        ended = await _carried(database_url, block, lose, of=url)
    if is_reply:
        assert ended == Ended(rows=1, runs=[1], attempt=1, ledger=[])
    else:
        assert ended == Ended(rows=1, runs=[1, 2], attempt=1, ledger=CUT)


async def test_what_the_body_did_to_its_own_transaction_counts(database_url: str) -> None:
    """A statement that was cancelled: the database is there, and the connection too."""

    @job("own.job", retry=ONCE)
    async def own(ctx: JobContext) -> None:
        async with ctx.step.transaction("book") as session:
            await session.execute(text("set local statement_timeout = '20ms'"))
            await session.execute(_SLOW)

    async with at(database_url, own) as bench:
        job_id = await bench.enqueue("own.job", max_attempts=1)
        await bench.until("attempt.dead", job_id)
        (attempt,) = await bench.ledger(job_id)
        assert (attempt.outcome.value, attempt.counted) == ("dead_lettered", True)


async def test_a_body_that_takes_its_own_connection_away_for_ever_is_charged_at_last(database_url: str) -> None:
    runs: list[int] = []

    @job("suicide.job", retry=ONCE)
    async def suicide(ctx: JobContext) -> None:
        async with ctx.step.transaction("book") as session:
            runs.append(ctx.claim_no)
            await session.execute(text("select pg_terminate_backend(pg_backend_pid())"))

    async with at(database_url, suicide) as bench:
        job_id = await bench.enqueue("suicide.job", max_attempts=1)
        await bench.until("attempt.dead", job_id)
        ledger = await bench.ledger(job_id)
        assert [one.outcome.value for one in ledger] == ["interrupted"] * 10 + ["dead_lettered"]
        assert (ledger[-1].counted, runs) == (True, list(range(1, 12)))


async def test_the_body_may_handle_what_the_cut_leaves_the_block_with(own_postgres: DevPostgres) -> None:
    """Inside the block it is the database's own error, outside it is the store's word; caught, the run goes on."""
    caught: list[object] = []
    reached, goes_on = asyncio.Event(), asyncio.Event()

    @job("handles.job", retry=ONCE)
    async def handles(ctx: JobContext) -> str:
        try:
            async with ctx.step.transaction("book") as session:
                await session.execute(text("select 1"))
                reached.set()
                await goes_on.wait()
                await _noting(caught, session.execute(text("select 1")))
        except DriverUnavailable as error:
            caught.append(type(error.__cause__))
        return await ctx.step.run("instead", lambda: "instead")

    await migrate(own_postgres.dsn())
    async with at(own_postgres.dsn(), handles) as bench:
        job_id = await bench.enqueue("handles.job", max_attempts=1)
        await reached.wait()
        await asyncio.to_thread(own_postgres.restart, "fast")
        goes_on.set()
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(job_id)).result == '"instead"'
        assert (len(caught), caught[0]) == (2, caught[1])
        assert isinstance(caught[0], type)
        assert issubclass(caught[0], DBAPIError)


async def _noting(caught: list[object], statement: Awaitable[Any]) -> None:
    try:
        await statement
    except DBAPIError as error:
        caught.append(type(error))
        raise
