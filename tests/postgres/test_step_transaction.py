"""Steps that commit with the caller's writes: on the driver's engine, on the caller's own, and on a foreign one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine

from app.domain.errors import LeaseLost, RequestInvalid, TransactionForeign
from app.domain.job import ClaimedJob
from app.domain.outcome import Completed
from app.domain.step import NewStep, StepKind
from tests.conformance.runs import a_step, steps
from tests.support.drivers import PostgresEnv, postgres_env

pytestmark = pytest.mark.postgres

BOOK = text("insert into booked values (1)")


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[PostgresEnv]:
    async with postgres_env(database_url) as opened:
        await opened.execute("create table booked(n int primary key)")
        yield opened


@pytest.fixture
async def own(database_url: str) -> AsyncIterator[AsyncEngine]:
    """An engine of the caller's, as its application makes it."""
    engine = create_async_engine(database_url)
    yield engine
    await engine.dispose()


def book(**fields: Any) -> NewStep:
    return a_step("book", kind=StepKind.TRANSACTION, **fields)


async def booked(store: PostgresEnv, held: ClaimedJob) -> tuple[int, list[str]]:
    """Give how many rows the caller has written, and the recorded steps."""
    async with store.engine.connect() as connection:
        count = (await connection.execute(text("select count(*) from booked"))).scalar_one()
    return count, await steps(store, held.token.job_id)


async def test_writes_and_step_are_committed_together(store: PostgresEnv) -> None:
    held = await store.running()
    async with store.driver.step_transaction(held.token, book(value='"b"')) as session:
        assert isinstance(session, AsyncSession)
        await session.execute(BOOK)
        assert await booked(store, held) == (0, [])
    assert await booked(store, held) == (1, ["book"])
    (step,) = (await store.driver.history(held.token.job_id, held.run_id)).steps
    assert (step.value, step.kind, step.claim_no, step.code_version) == ('"b"', StepKind.TRANSACTION, 1, "1.0.0")


async def test_a_body_that_fails_leaves_nothing_and_its_error_is_its_own(store: PostgresEnv) -> None:
    held = await store.running()
    with pytest.raises(ZeroDivisionError):
        async with store.driver.step_transaction(held.token, book()) as session:
            await _fail(session)
    assert await booked(store, held) == (0, [])


async def _fail(session: AsyncSession) -> None:
    await session.execute(BOOK)
    raise ZeroDivisionError


async def _commit(session: AsyncSession) -> None:
    await session.execute(BOOK)
    await session.commit()


async def test_connections_go_back_as_they_were(store: PostgresEnv) -> None:
    """Every statement of the driver commits by itself again, planned as the driver wants it."""
    held = await store.running()
    for number in range(8):  # more than the pool has
        async with store.driver.step_transaction(held.token, book()) as session:
            await session.execute(text("select 1"))
        async with store.engine.connect() as connection:
            assert (await connection.execute(text("show enable_seqscan"))).scalar_one() == "off"
            await connection.execute(text("insert into booked values (:n)"), {"n": number})
    assert (await booked(store, held))[0] == 8


async def test_bodies_leave_connections_to_verbs(store: PostgresEnv) -> None:
    """As many as may have one; within them steps of other claims are recorded."""
    held = await store.running()
    async with (
        store.driver.step_transaction(held.token, book()) as first,
        store.driver.step_transaction(held.token, book()) as second,
    ):
        await first.execute(text("select 1"))
        await second.execute(text("select 1"))
        assert await store.driver.record_step(held.token, a_step("within"))


@pytest.mark.parametrize("kind", ["engine", "sessionmaker", "autocommit"])
async def test_the_callers_own_engine_serves(store: PostgresEnv, own: AsyncEngine, kind: str) -> None:
    held = await store.running()
    binds: dict[str, Callable[[], object]] = {
        "engine": lambda: own,
        "sessionmaker": lambda: async_sessionmaker(own, expire_on_commit=False),
        "autocommit": lambda: own.execution_options(isolation_level="AUTOCOMMIT"),
    }
    async with store.driver.step_transaction(held.token, book(), bind=binds[kind]()) as session:
        await session.execute(BOOK)
        assert await booked(store, held) == (0, [])
    assert await booked(store, held) == (1, ["book"])


@pytest.mark.parametrize("has_schema", [True, False])
async def test_another_database_is_foreign(
    store: PostgresEnv, make_database: Callable[..., str], has_schema: bool
) -> None:
    held = await store.running()
    foreign = create_async_engine(make_database(migrated=has_schema))
    try:
        async with foreign.begin() as connection:
            await connection.execute(text("create table booked(n int)"))
        with pytest.raises(TransactionForeign):
            async with store.driver.step_transaction(held.token, book(), bind=foreign) as session:
                await session.execute(BOOK)
        async with foreign.connect() as connection:
            assert (await connection.execute(text("select count(*) from booked"))).scalar_one() == 0
    finally:
        await foreign.dispose()
    assert await booked(store, held) == (0, [])


@pytest.mark.parametrize("bind", [object(), async_sessionmaker()], ids=["no engine", "bound to nothing"])
async def test_what_gives_no_session_of_the_store_is_foreign(store: PostgresEnv, bind: object) -> None:
    held = await store.running()
    with pytest.raises(TransactionForeign):
        async with store.driver.step_transaction(held.token, book(), bind=bind):
            raise AssertionError("the body must not run")


async def test_a_claim_that_is_gone_writes_nothing(store: PostgresEnv) -> None:
    held = await store.running()
    await store.close_attempt(held.token, Completed())
    with pytest.raises(LeaseLost):
        async with store.driver.step_transaction(held.token, book()) as session:
            await session.execute(BOOK)
    assert await booked(store, held) == (0, [])


async def test_a_lease_that_has_passed_writes_nothing(store: PostgresEnv) -> None:
    held = await store.running()
    await store.vanish()
    with pytest.raises(LeaseLost):
        async with store.driver.step_transaction(held.token, book()) as session:
            await session.execute(BOOK)
    assert await booked(store, held) == (0, [])


async def test_another_claim_of_the_job_is_not_this_one(store: PostgresEnv) -> None:
    held = await store.running()
    for token in (held.token._replace(fence=held.token.fence + 1), held.token._replace(claim_no=7)):
        with pytest.raises(LeaseLost):
            async with store.driver.step_transaction(token, book()) as session:
                await session.execute(BOOK)
    assert await booked(store, held) == (0, [])


async def test_a_body_that_commits_by_itself_is_refused(store: PostgresEnv) -> None:
    held = await store.running()
    with pytest.raises(RequestInvalid, match="committed"):
        async with store.driver.step_transaction(held.token, book()) as session:
            await _commit(session)
    assert await booked(store, held) == (0, [])


async def test_savepoints_are_the_bodys_own(store: PostgresEnv) -> None:
    held = await store.running()
    async with store.driver.step_transaction(held.token, book()) as session:
        await session.execute(BOOK)
        async with session.begin_nested():
            await session.execute(text("insert into booked values (2)"))
    assert await booked(store, held) == (2, ["book"])


async def test_a_step_that_is_recorded_stays_as_it_was(store: PostgresEnv) -> None:
    """As after a commit whose reply was lost: the runner asks the history before it runs a body again."""
    held = await store.running()
    for value in ("1", "2"):
        async with store.driver.step_transaction(held.token, book(value=value)):
            pass
    (step,) = (await store.driver.history(held.token.job_id, held.run_id)).steps
    assert step.value == "1"
