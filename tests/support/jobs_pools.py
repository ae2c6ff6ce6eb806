"""Jobs that hold connections until a gate opens: of a pool of their own, or of the store's. For workers of tests."""

from __future__ import annotations

import asyncio
import os

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from app.drivers.postgres.connect import dsn_of
from app.jobs import JobContext, job
from tests.support.jobs_faults import effects
from tests.support.ledger import Ledger

OVER = "over"
HELD = 100
_ENGINES: list[AsyncEngine] = []


def _pool_of_the_application() -> AsyncEngine:
    """Give the pool of this process, made with the first body that asks."""
    if not _ENGINES:
        url = dsn_of(os.environ["OUTLAST_DATABASE_URL"]).replace("postgresql://", "postgresql+asyncpg://")
        _ENGINES.append(create_async_engine(url, pool_size=HELD, max_overflow=0))
    return _ENGINES[0]


async def _until_over(ctx: JobContext, ledger: Ledger) -> None:
    ledger.record("held", job=ctx.id, epoch=ctx.claim_no)
    while not ledger.is_open(OVER):
        await asyncio.sleep(0.05)


@job("pools.own")
async def own(ctx: JobContext) -> None:
    """Hold a connection of the application's pool."""
    with effects(ctx) as ledger:
        async with _pool_of_the_application().begin() as connection:
            await connection.execute(text("select 1"))
            await _until_over(ctx, ledger)


@job("pools.step")
async def step(ctx: JobContext) -> None:
    """Hold a connection of the store's pool, in the transaction of a step, or wait for one."""
    with effects(ctx) as ledger:
        async with ctx.step.transaction("hold") as session:
            await session.execute(text("select 1"))
            await _until_over(ctx, ledger)


@job("pools.none")
async def none(ctx: JobContext) -> None:
    """Need no connection."""
    with effects(ctx):
        await asyncio.sleep(0)
