"""A deadlock or a serialization failure in a verb: repeated up to three times and then done, or said to the caller.

A trigger answers in the server's place, so often as a sequence says: what is rolled back with a statement is not what
counts its tries.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import pytest

from app.domain.errors import DriverUnavailable
from app.domain.outcome import Completed, Retried, SettleAnswer
from app.domain.schedule import Declaration, Overlap, Plan, Planned
from app.domain.state import State
from app.drivers.postgres.sqlstate import Contended
from app.drivers.protocol import PurgeQuery
from app.drivers.schedules import schedules_of
from tests.conformance.runs import new_event
from tests.support.drivers import ERROR, LEASE, PostgresEnv, new_job, postgres_env

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(60)]

MINUTE = timedelta(minutes=1)
RETRIES = 3
STATES = ("40P01", "40001")

_CONTEND = """
create function public.contend() returns trigger language plpgsql as $$
begin
  if nextval('public.contended') <= {times} then raise exception 'forced' using errcode = '{state}'; end if;
  return null;
end $$"""
_TRIGGER = """
create trigger contend before insert or update or delete on outlast.{table}
for each statement execute function public.contend()"""

Verb = Callable[[], Awaitable[object]]
Arranged = Callable[[PostgresEnv], Awaitable[Verb]]


class Contention:
    """Lets writes to a table fail so many times, and counts how often it did."""

    def __init__(self, env: PostgresEnv) -> None:
        self._env = env

    async def begin(self, table: str, state: str, *, times: int) -> None:
        """Fail the next `times` statements that write to a table."""
        await self._env.execute("create sequence public.contended")
        await self._env.execute(_CONTEND.format(times=times, state=state))
        await self._env.execute(_TRIGGER.format(table=table))

    async def asked(self) -> int:
        """Give how many statements have come to it."""
        async with self._env.engine.connect() as connection:
            found = await connection.exec_driver_sql(
                "select case when is_called then last_value else 0 end from public.contended"
            )
            return int(found.scalar_one())


@pytest.fixture
async def env(database_url: str) -> AsyncIterator[PostgresEnv]:
    async with postgres_env(database_url) as opened:
        yield opened


# --- the verbs


async def settle(env: PostgresEnv) -> Verb:
    token = (await env.running(key="k")).token

    async def verb() -> None:
        assert await env.settle(token, Completed(result='"1"')) is SettleAnswer.SETTLED

    return verb


async def settle_another_way(env: PostgresEnv) -> Verb:
    token = (await env.running()).token

    async def verb() -> None:
        answer = await env.settle(token, Retried(error=ERROR, delay=timedelta()))
        assert answer is SettleAnswer.SETTLED

    return verb


async def sweep(env: PostgresEnv) -> Verb:
    held = await env.running()
    await env.vanish(lease=LEASE)

    async def verb() -> None:
        await env.driver.reap()
        assert (await env.describe(held.token.job_id)).state is State.READY

    return verb


async def cancel(env: PostgresEnv) -> Verb:
    job_id = await env.enqueue(key="k")

    async def verb() -> None:
        await env.driver.cancel(job_id, reason="tests")
        assert (await env.describe(job_id)).state is State.CANCELLED

    return verb


async def schedule(env: PostgresEnv) -> Verb:
    store = schedules_of(env.driver)
    assert store is not None
    declared = Declaration(name="ticks", code_version="1", cron="* * * * *", tz="UTC", document="{}")
    await store.declare([declared])
    at = env.now().replace(second=0, microsecond=0) + MINUTE

    async def verb() -> None:
        plan = Plan(
            name="ticks",
            digest=declared.digest,
            until=at,
            planned=(Planned(at=at, job=new_job()),),
            overlap=Overlap.SKIP,
        )
        (decided,) = await store.decide(plan) or ()
        assert decided.job_id is not None
        view = await store.find("ticks")
        assert view is not None
        assert [row.job_id for row in view.occurrences] == [decided.job_id]
        assert (await env.driver.stats()).by_state[State.READY] == 1

    return verb


async def enqueue(env: PostgresEnv) -> Verb:
    async def verb() -> None:
        job = new_job(key="k")
        assert (await env.driver.enqueue(job)).id == job.id

    return verb


async def claim(env: PostgresEnv) -> Verb:
    worker = await env.register()
    job_id = await env.enqueue()

    async def verb() -> None:
        assert (await env.claim_one(worker)).token.job_id == job_id

    return verb


async def promote(env: PostgresEnv) -> Verb:
    await env.enqueue(delay=MINUTE)
    await env.advance(2 * MINUTE)

    async def verb() -> None:
        assert await env.driver.promote()

    return verb


async def purge(env: PostgresEnv) -> Verb:
    await env.close_attempt((await env.running()).token, Completed())
    await env.advance(MINUTE)

    async def verb() -> None:
        assert await env.driver.purge(PurgeQuery(state=State.DONE, older_than=timedelta())) == 1

    return verb


async def retry(env: PostgresEnv) -> Verb:
    job_id = await env.enqueue()
    await env.driver.cancel(job_id, reason="tests")

    async def verb() -> None:
        await env.driver.retry(job_id)
        assert (await env.describe(job_id)).state is State.READY

    return verb


async def emit(env: PostgresEnv) -> Verb:
    async def verb() -> None:
        await env.driver.emit(new_event(key="1"))

    return verb


# What fails, and the table whose writes do.
VERBS: dict[str, tuple[Arranged, str]] = {
    "settle": (settle, "finished"),
    "settle for another try": (settle_another_way, "attempt"),
    "sweep": (sweep, "running"),
    "cancel": (cancel, "finished"),
    "schedule": (schedule, "occurrence"),
    "enqueue": (enqueue, "live_key"),
    "claim": (claim, "running"),
    "promote": (promote, "waiting"),
    "purge": (purge, "finished"),
    "retry": (retry, "ready"),
    "emit": (emit, "event"),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", VERBS)
async def test_a_verb_is_repeated_three_times_and_then_done(env: PostgresEnv, name: str, state: str) -> None:
    arranged, table = VERBS[name]
    verb, contention = await arranged(env), Contention(env)
    await contention.begin(table, state, times=RETRIES)
    await verb()
    assert await contention.asked() > RETRIES


@pytest.mark.parametrize("name", VERBS)
async def test_contention_that_does_not_end_is_said_after_the_third_repetition(env: PostgresEnv, name: str) -> None:
    arranged, table = VERBS[name]
    verb, contention = await arranged(env), Contention(env)
    await contention.begin(table, "40P01", times=1_000)
    with pytest.raises(DriverUnavailable, match="40P01") as refused:
        await verb()
    assert isinstance(refused.value, Contended)
    assert refused.value.fix == "repeat the call"
    assert await contention.asked() == 1 + RETRIES


async def test_repetitions_wait_for_longer_each_time_and_not_for_the_same_time(
    env: PostgresEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    rolls, waited = iter((1.0, 1.0, 0.5)), list[float]()
    database = env.driver._db  # type: ignore[attr-defined] # this driver's own
    monkeypatch.setattr(database, "_roll", lambda: next(rolls))

    async def noted(seconds: float) -> None:
        waited.extend([seconds] if seconds else [])

    monkeypatch.setattr("app.drivers.postgres.database.asyncio.sleep", noted)
    verb, contention = await cancel(env), Contention(env)
    await contention.begin("finished", "40001", times=RETRIES)
    await verb()
    assert waited == pytest.approx([0.04, 0.08, 0.08])
