"""A caller's transaction that nothing can be staged in: what is said of it, and that the repair is true."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.ext.asyncio import create_async_engine as create_callers_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from app.domain.errors import DriverUnavailable, OutboxNoTx, SettingsInvalid
from app.domain.outbox import Pass
from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver
from app.jobs import Client, StagedJob, job, use_client

pytestmark = pytest.mark.postgres


@job("receipts.send")
async def send(order_id: int) -> None: ...


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture
async def driver(database_url: str) -> AsyncIterator[PostgresDriver]:
    driver = PostgresDriver(create_engine(database_url), owns_engine=True)
    await driver.open()
    try:
        with use_client(Client(driver)):
            yield driver
    finally:
        await driver.close()


@pytest.fixture
async def engine(driver: PostgresDriver) -> AsyncIterator[AsyncEngine]:
    """The application's engine, with a table of its own."""
    engine = create_callers_engine(driver._db.engine.url)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield engine
    await engine.dispose()


Opened: TypeAlias = AsyncSession | AsyncConnection
Way: TypeAlias = Callable[[Opened], Awaitable[StagedJob]]


async def awaited(opened: Opened) -> StagedJob:
    return await send.enqueue({"order_id": 1}, session=opened)


async def in_sync_code(opened: Opened) -> StagedJob:
    return await opened.run_sync(lambda sync: send.stage({"order_id": 1}, session=sync))


def opened_by(engine: AsyncEngine, kind: type[Opened]) -> Opened:
    return AsyncSession(engine) if kind is AsyncSession else engine.connect()


each_way = pytest.mark.parametrize("way", [awaited, in_sync_code], ids=lambda way: way.__name__)
each_kind = pytest.mark.parametrize("kind", [AsyncSession, AsyncConnection], ids=lambda kind: kind.__name__)


@each_way
@each_kind
async def test_an_aborted_transaction_says_so_and_stages_once_it_is_rolled_back(
    driver: PostgresDriver, engine: AsyncEngine, kind: type[Opened], way: Way
) -> None:
    async with opened_by(engine, kind) as opened:
        with pytest.raises(DBAPIError, match="nowhere"):
            await opened.execute(text("select * from nowhere"))
        with pytest.raises(OutboxNoTx, match="aborted") as refused:
            await way(opened)
        assert "roll back" in refused.value.fix
        await opened.rollback()
        await way(opened)
        await opened.commit()
    assert await driver.outbox.publish(10) == Pass(published=1)


@each_way
@each_kind
async def test_a_savepoint_from_before_the_failure_is_enough(
    driver: PostgresDriver, engine: AsyncEngine, kind: type[Opened], way: Way
) -> None:
    async with opened_by(engine, kind) as opened, opened.begin():
        savepoint = await opened.begin_nested()
        with pytest.raises(DBAPIError, match="nowhere"):
            await opened.execute(text("select * from nowhere"))
        with pytest.raises(OutboxNoTx, match="aborted"):
            await way(opened)
        await savepoint.rollback()
        await way(opened)
    assert await driver.outbox.publish(10) == Pass(published=1)


@each_way
@each_kind
async def test_a_transaction_that_only_reads_says_so_and_one_that_writes_stages(
    driver: PostgresDriver, engine: AsyncEngine, kind: type[Opened], way: Way
) -> None:
    async with opened_by(engine, kind) as opened:
        await opened.execute(text("set transaction read only"))
        with pytest.raises(OutboxNoTx, match="only reads") as refused:
            await way(opened)
        assert "may write" in refused.value.fix
        await opened.rollback()
        await way(opened)
        await opened.commit()
    assert await driver.outbox.publish(10) == Pass(published=1)


@each_way
async def test_a_session_whose_flush_failed_says_that_it_must_be_rolled_back(
    driver: PostgresDriver, engine: AsyncEngine, way: Way
) -> None:
    async with AsyncSession(engine) as session:
        session.add_all([Order(id=1)])
        await session.commit()
        session.expunge_all()
        session.add(Order(id=1))
        with pytest.raises(IntegrityError):
            await session.flush()
        with pytest.raises(OutboxNoTx, match="rolled back") as refused:
            await way(session)
        assert "roll back" in refused.value.fix
        await session.rollback()
        await way(session)
        await session.commit()
    assert await driver.outbox.publish(10) == Pass(published=1)


@each_way
@each_kind
async def test_what_failed_in_the_callers_transaction_is_repeated_with_all_of_it(
    driver: PostgresDriver, engine: AsyncEngine, kind: type[Opened], way: Way
) -> None:
    async with engine.connect() as other, opened_by(engine, kind) as opened:
        await other.execute(text("lock table outlast.outbox in access exclusive mode"))
        await opened.execute(text("set local lock_timeout = '10ms'"))
        with pytest.raises(DriverUnavailable, match="55P03") as refused:
            await way(opened)
        assert "roll your transaction back" in refused.value.fix
        await other.rollback()
        await opened.rollback()
        await way(opened)
        await opened.commit()
    assert await driver.outbox.publish(10) == Pass(published=1)


@each_way
@each_kind
async def test_a_connection_that_is_gone_says_so(
    driver: PostgresDriver, engine: AsyncEngine, kind: type[Opened], way: Way
) -> None:
    async with engine.connect() as other, opened_by(engine, kind) as opened:
        pid = (await opened.execute(text("select pg_backend_pid()"))).scalar_one()
        await other.execute(text("select pg_terminate_backend(:pid, 5000)"), {"pid": pid})
        with pytest.raises(DriverUnavailable) as refused:
            await way(opened)
        assert "roll your transaction back" in refused.value.fix
        await opened.rollback()
        await way(opened)
        await opened.commit()
    assert await driver.outbox.publish(10) == Pass(published=1)


async def test_a_session_that_cannot_connect_says_so(driver: PostgresDriver) -> None:
    nobody = create_callers_engine("postgresql+asyncpg://nobody@127.0.0.1:1/nothing")
    async with AsyncSession(nobody) as session:
        with pytest.raises(DriverUnavailable, match="cannot be reached"):
            await send.enqueue({"order_id": 1}, session=session)
    await nobody.dispose()
    assert await driver.outbox.publish(10) == Pass()


@each_way
@each_kind
async def test_a_role_that_may_not_write_is_told_what_it_needs(
    driver: PostgresDriver, engine: AsyncEngine, kind: type[Opened], way: Way
) -> None:
    role = f"shop_{uuid4().hex[:12]}"
    async with engine.begin() as connection:
        await connection.execute(text(f"create role {role}"))
    async with opened_by(engine, kind) as opened:
        await opened.execute(text(f"set local role {role}"))
        with pytest.raises(SettingsInvalid, match="role") as refused:
            await way(opened)
        assert "insert" in refused.value.fix
    async with engine.begin() as connection:
        await connection.execute(text(f"drop role {role}"))
    assert await driver.outbox.publish(10) == Pass()
