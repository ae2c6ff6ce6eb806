"""The caller's side: every kind of transaction SQLAlchemy has, and what is refused instead of published at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import TypeAlias
from uuid import uuid4

import pytest
from sqlalchemy import create_engine as create_sync_engine
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.ext.asyncio import create_async_engine as create_callers_engine
from sqlalchemy.orm import Session

from app.domain.errors import OutboxNoTx, OutlastError, SchemaOutdated, TransactionForeign
from app.domain.outbox import Pass
from app.drivers.postgres import migrations
from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.postgres.outbox import PostgresOutbox
from app.jobs import Client, StagedJob, job, use_client

pytestmark = pytest.mark.postgres


@job("receipts.send", idempotency_key="order:{order_id}")
async def send(order_id: int) -> None: ...


@pytest.fixture
async def driver(database_url: str) -> AsyncIterator[PostgresDriver]:
    driver = PostgresDriver(create_engine(database_url), owns_engine=True)
    await driver.open()
    try:
        yield driver
    finally:
        await driver.close()


@pytest.fixture
async def engine(driver: PostgresDriver) -> AsyncIterator[AsyncEngine]:
    """The application's engine, with a table of its own."""
    engine = create_callers_engine(driver._db.engine.url)
    async with engine.begin() as connection:
        await connection.execute(text("create table orders(id int primary key)"))
    yield engine
    await engine.dispose()


ORDER = text("insert into orders values (:id)")
ONE = {"id": 1}


async def by_session(_driver: PostgresDriver, engine: AsyncEngine) -> StagedJob:
    async with AsyncSession(engine) as session:
        await session.execute(ORDER, ONE)
        answer = await send.enqueue({"order_id": 1}, session=session)
        await session.commit()
        return answer


async def by_session_that_has_not_begun(_driver: PostgresDriver, engine: AsyncEngine) -> StagedJob:
    async with AsyncSession(engine) as session:
        answer = await send.enqueue({"order_id": 1}, session=session)
        await session.execute(ORDER, ONE)
        await session.commit()
        return answer


async def by_connection(_driver: PostgresDriver, engine: AsyncEngine) -> StagedJob:
    async with engine.begin() as connection:
        await connection.execute(ORDER, ONE)
        return await send.enqueue({"order_id": 1}, session=connection)


async def by_scoped_session(_driver: PostgresDriver, engine: AsyncEngine) -> StagedJob:
    scoped = async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: 1)
    try:
        await scoped.execute(ORDER, ONE)
        answer = await send.enqueue({"order_id": 1}, session=scoped)
        await scoped.commit()
        return answer
    finally:
        await scoped.remove()


def in_sync_code(session: Session) -> StagedJob:
    session.execute(ORDER, ONE)
    return send.stage({"order_id": 1}, session=session)


async def by_sync_session(_driver: PostgresDriver, engine: AsyncEngine) -> StagedJob:
    async with AsyncSession(engine) as session, session.begin():
        return await session.run_sync(in_sync_code)


async def by_sync_connection(_driver: PostgresDriver, engine: AsyncEngine) -> StagedJob:
    async with engine.begin() as connection:
        await connection.execute(ORDER, ONE)
        return await connection.run_sync(lambda sync: send.stage({"order_id": 1}, session=sync))


async def by_current_session(driver: PostgresDriver, engine: AsyncEngine) -> StagedJob:
    current: ContextVar[AsyncSession | None] = ContextVar("session", default=None)
    async with AsyncSession(engine) as session, session.begin():
        current.set(session)
        with use_client(Client(driver), current_session=current.get):
            await session.execute(ORDER, ONE)
            return await send.enqueue({"order_id": 1}, mode="required")


Way: TypeAlias = Callable[[PostgresDriver, AsyncEngine], Awaitable[StagedJob]]

WAYS: list[Way] = [
    by_session,
    by_session_that_has_not_begun,
    by_connection,
    by_scoped_session,
    by_sync_session,
    by_sync_connection,
    by_current_session,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_order_and_job_commit_together(driver: PostgresDriver, engine: AsyncEngine, way: Way) -> None:
    with use_client(Client(driver)):
        staged = await way(driver, engine)
    assert staged.outbox_id == staged.id
    assert await driver.outbox.publish(10) == Pass(published=1)
    view = await driver.describe(staged.id)
    assert view is not None
    assert (view.key, view.payload) == ("order:1", '{"order_id":1}')


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_order_and_job_roll_back_together(driver: PostgresDriver, engine: AsyncEngine, way: Way) -> None:
    async with engine.begin() as connection:
        # Refused at the commit: the job was staged by then.
        await connection.execute(
            text("create function refuse() returns trigger language plpgsql as 'begin raise $$refused$$; end'")
        )
        await connection.execute(
            text(
                "create constraint trigger refused after insert on orders deferrable initially deferred"
                " for each row execute function refuse()"
            )
        )
    with use_client(Client(driver)), pytest.raises(Exception, match="refused"):
        await way(driver, engine)
    assert await driver.outbox.publish(10) == Pass()


async def test_a_session_rings_for_what_its_commit_made_visible_and_for_nothing_else(
    driver: PostgresDriver, engine: AsyncEngine
) -> None:
    rings: list[str] = []
    driver.outbox._ring = lambda: rings.append("ring")  # type: ignore[method-assign] # heard instead of sent
    async with AsyncSession(engine) as session:
        with use_client(Client(driver)):
            await send.enqueue({"order_id": 1}, session=session)
            await session.rollback()
            await session.execute(ORDER, ONE)
            await session.commit()
            assert rings == []
            await send.enqueue({"order_id": 2}, session=session)
            await (await session.begin_nested()).rollback()
            assert rings == []
            await session.commit()
            assert rings == ["ring"]
            await session.execute(text("select 1"))
            await session.commit()
            assert rings == ["ring"]
            await send.enqueue({"order_id": 3}, session=session)
            await session.commit()
            assert rings == ["ring", "ring"]
            async with session.begin_nested():
                await send.enqueue({"order_id": 4}, session=session)
            assert rings == ["ring", "ring"]
            await session.commit()
            assert rings == ["ring", "ring", "ring"]


async def test_a_commit_after_the_drivers_loop_has_ended_succeeds(driver: PostgresDriver, engine: AsyncEngine) -> None:
    ended = asyncio.new_event_loop()
    ended.close()
    driver.outbox.ring_on(ended)
    with use_client(Client(driver)):
        async with AsyncSession(engine) as session, session.begin():
            await send.enqueue({"order_id": 1}, session=session)
    assert await driver.outbox.publish(10) == Pass(published=1)


async def test_a_role_that_may_only_insert_can_stage(driver: PostgresDriver, engine: AsyncEngine) -> None:
    role = f"shop_{uuid4().hex[:12]}"
    async with engine.begin() as connection:
        await connection.execute(text(f"create role {role}"))
        await connection.execute(text(f"grant usage on schema outlast to {role}"))
        await connection.execute(text(f"grant insert on outlast.outbox to {role}"))
    with use_client(Client(driver)):
        async with engine.begin() as connection:
            await connection.execute(text(f"set local role {role}"))
            await send.enqueue({"order_id": 1}, session=connection, tags=["a"], delay=timedelta(milliseconds=1))
    assert await driver.outbox.publish(10) == Pass(published=1)
    async with engine.begin() as connection:
        await connection.execute(text(f"drop owned by {role}"))
        await connection.execute(text(f"drop role {role}"))


async def test_an_autocommit_connection_is_no_transaction(driver: PostgresDriver, engine: AsyncEngine) -> None:
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
    with use_client(Client(driver)):
        async with autocommit.connect() as connection:
            with pytest.raises(OutboxNoTx, match="AUTOCOMMIT"):
                await send.enqueue({"order_id": 1}, session=connection)
        async with AsyncSession(driver._db.engine) as session:  # ours is in AUTOCOMMIT from the start
            with pytest.raises(OutboxNoTx, match="AUTOCOMMIT"):
                await send.enqueue({"order_id": 1}, session=session)
    assert await driver.outbox.publish(10) == Pass()


async def test_a_session_that_may_not_begin_by_itself_needs_a_transaction(
    driver: PostgresDriver, engine: AsyncEngine
) -> None:
    with use_client(Client(driver)):
        async with AsyncSession(engine, autobegin=False) as session:
            with pytest.raises(OutboxNoTx):
                await send.enqueue({"order_id": 1}, session=session)


async def test_a_sync_session_over_an_async_engine_is_refused_outside_of_run_sync(
    driver: PostgresDriver, engine: AsyncEngine
) -> None:
    with use_client(Client(driver)), Session(engine.sync_engine) as session, pytest.raises(OutlastError) as caught:
        send.stage({"order_id": 1}, session=session)
    assert caught.value.code == "OUTBOX_NO_TX"


async def test_a_session_of_async_code_cannot_be_staged_in_without_awaiting(
    driver: PostgresDriver, engine: AsyncEngine
) -> None:
    async with AsyncSession(engine) as session:
        with use_client(Client(driver)), pytest.raises(OutboxNoTx, match="awaiting"):
            send.stage({"order_id": 1}, session=session)


async def test_another_kind_of_database_is_refused(driver: PostgresDriver) -> None:
    sqlite = create_sync_engine("sqlite://")
    with use_client(Client(driver)), Session(sqlite) as session, pytest.raises(TransactionForeign, match="sqlite"):
        send.stage({"order_id": 1}, session=session)
    sqlite.dispose()


async def test_a_database_without_an_outbox_names_the_repair(
    driver: PostgresDriver, make_database: Callable[..., str]
) -> None:
    elsewhere = create_callers_engine(create_engine(make_database(migrated=False)).url)
    with use_client(Client(driver)):
        async with AsyncSession(elsewhere) as session:
            with pytest.raises(SchemaOutdated) as caught:
                await send.enqueue({"order_id": 1}, session=session)
    assert "migrate up --db" in caught.value.fix
    await elsewhere.dispose()


async def test_another_database_has_its_own_outbox(driver: PostgresDriver, make_database: Callable[..., str]) -> None:
    url = make_database()
    outbox = PostgresOutbox.over(create_engine(url))
    await outbox.open()
    callers = create_callers_engine(create_engine(url).url)
    with use_client(Client(driver)):
        async with AsyncSession(callers) as session, session.begin():
            staged = await send.enqueue({"order_id": 1}, session=session)
    assert await driver.outbox.find(staged.id) is None
    assert await outbox.find(staged.id) is not None
    await callers.dispose()
    await outbox.close()


async def test_an_outbox_that_was_not_migrated_does_not_open(make_database: Callable[..., str]) -> None:
    outbox = PostgresOutbox.over(create_engine(make_database(migrated=False)))
    with pytest.raises(SchemaOutdated, match="outbox"):
        await outbox.open()
    await outbox.close()


async def test_a_schema_of_another_name_is_staged_in(empty_database_url: str) -> None:
    await migrations.upgrade(empty_database_url, schema="user")
    driver = PostgresDriver(create_engine(empty_database_url), schema="user", owns_engine=True)
    await driver.open()
    callers = create_callers_engine(driver._db.engine.url)
    with use_client(Client(driver)):
        async with AsyncSession(callers) as session, session.begin():
            await send.enqueue({"order_id": 1}, session=session)
    assert await driver.outbox.publish(10) == Pass(published=1)
    await callers.dispose()
    await driver.close()
