"""The server's time limits pass at a statement of every operation: nothing is half done, and it can be done again.

The operations are those whose connections are cut in `tests/faults/cuts`; here the connection is well. Another session
holds the table that a statement needs, until the server gives the statement up; or a transaction idles until the server
ends it. The caller is told that a repetition may help, repeats, and everything is as if nothing had been. The product
has one connection a database: one that leaked, or was left in a transaction, would be missed by the next call.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from app.domain.errors import DriverUnavailable, OutlastError
from app.domain.step import StepKind
from app.drivers.postgres.sqlstate import translate
from app.steps.repeat import until_known
from tests.conformance.runs import a_step
from tests.faults.cuts import ends, enqueue, heart, outbox, repairs, runs, schedules, settle, upkeep, waits, worker
from tests.faults.cuts.bench import Bench, bench_on
from tests.faults.cuts.cell import Operation, play, statements_of
from tests.faults.cuts.table import commits
from tests.support.blade import Limit
from tests.support.processes import eventually

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(120)]

_OPERATIONS: tuple[type[Operation], ...] = (
    *enqueue.OPERATIONS,
    *outbox.STAGING,
    *outbox.SHARED,
    *outbox.APART,
    *worker.OPERATIONS,
    *heart.OPERATIONS,
    *settle.OPERATIONS,
    *runs.RECORDS,
    *runs.SUSPENSIONS,
    *ends.ENDS,
    *waits.WAKES,
    *repairs.REPAIRS,
    *upkeep.OPERATIONS,
    *schedules.OPERATIONS,
)
# Milliseconds. A lock is waited for only where the test holds it; the others would pass on a machine that is busy.
_PASSES_AFTER = {Limit.LOCK: 30, Limit.STATEMENT: 200, Limit.IDLE: 200}
_STATE = {Limit.LOCK: "55P03", Limit.STATEMENT: "57014"}
_ENDED = "ended by the server"
_ABOUT_TABLES = '"outlast".'
_NOTHING_TO_WAIT_FOR = "nothing to wait for"
_BENCHES = 6
_PATIENCE_SECONDS = 20.0
_SALE = text("insert into public.sale(id) values (:id)")
# So many cells at least, so that none is lost in silence.
_CELLS = {Limit.LOCK: 170, Limit.STATEMENT: 75, Limit.IDLE: 30}
# What is done after the verb's own commit, and its failure is nobody's.
_TELLS_AFTERWARDS = (ends.CallOver, waits.ExpireRun, waits.ReleaseDue, repairs.CancelFamily, repairs.RetryFrom)
# It has the tables from the moment its statements are prepared, in its transaction: it has tests of its own.
_PREPARES = runs.StepTransaction

Heard = list[Exception | None]


@pytest.mark.long
async def test_a_limit_that_passes_at_any_statement_leaves_nothing_half_done(
    make_database: Callable[..., str], folder: Path
) -> None:
    todo = iter(_OPERATIONS)
    seen: set[Sequence[str]] = set()
    passed: Counter[Limit] = Counter()

    async def work_through(number: int) -> None:
        async with bench_on(make_database, folder / str(number)) as bench:
            for kind in todo:
                statements = await statements_of(bench, kind)
                own = Counter(
                    [
                        limit
                        for limit in Limit
                        for at in _where(limit, kind, statements, seen)
                        if await _passed(bench, kind, at, limit, statements)
                    ]
                )
                assert own[Limit.LOCK] or kind is _PREPARES, f"{kind.name} has waited for no table"
                passed.update(own)

    async with asyncio.TaskGroup() as group:
        for number in range(_BENCHES):
            group.create_task(work_through(number))
    for limit, least in _CELLS.items():
        assert passed[limit] >= least, passed


def _where(limit: Limit, kind: type[Operation], statements: Sequence[str], seen: set[Sequence[str]]) -> Iterator[int]:
    """Give the statements at which the limit can pass; those that take the limit's whole time once, not once a verb."""
    if limit is Limit.IDLE and kind is _PREPARES:
        return  # a body may pause for longer
    for at, sql in enumerate(statements):
        if limit is Limit.LOCK:
            if _ABOUT_TABLES in sql:
                yield at
            continue
        is_commit = sql.startswith("COMMIT")
        what = tuple(statements[:at]) if is_commit else (sql,)
        if is_commit is (limit is Limit.IDLE) and (is_commit or _ABOUT_TABLES in sql) and what not in seen:
            seen.add(what)
            yield at


async def _passed(bench: Bench, kind: type[Operation], at: int, limit: Limit, statements: Sequence[str]) -> bool:
    """Play one cell; says whether there was anything to wait for, and so whether the limit has passed."""
    heard: Heard = []
    try:
        cell = await play(bench, _limited(kind, limit, heard), at, limit, statements)
    except BaseException as error:
        error.add_note(f"cell: {kind.name}, statement {at + 1} of {len(statements)}, {limit}: {bench.blade.said}")
        error.add_note(statements[at])
        raise
    await bench.warm()
    await _set(bench, limit, "default")
    await _nothing_left_open(bench)
    if cell.proof == _NOTHING_TO_WAIT_FOR:
        return False
    is_committed = any(done < at for done in commits(statements))
    if heard[0] is None:
        # The answer stands; the parents of what ended are told by the next sweep.
        assert issubclass(kind, _TELLS_AFTERWARDS), f"{kind.name}, statement {at + 1}: nobody was told"
        assert cell.stored
        assert is_committed
    else:
        _hold_to_its_word(kind, limit, heard[0], cell.proof)
        assert is_committed or not cell.stored, f"{kind.name}, statement {at + 1}: something was stored"
    return True


def _limited(kind: type[Operation], limit: Limit, heard: Heard) -> type[Operation]:
    """Give the operation under the limit; what its calls come to is added to `heard`."""

    async def arrange(self: Any) -> None:
        await kind.arrange(self)
        await self.bench.warm()
        own = [self.heart._connection] if hasattr(self, "heart") else []
        await _set(self.bench, limit, f"'{_PASSES_AFTER[limit]}ms'", *own)

    async def call(self: Any) -> Any:
        try:
            answer = await kind.call(self)
        except Exception as error:
            heard.append(error)
            raise
        self.is_cut = self.is_cut and bool(heard)  # as far as its caller knows
        heard.append(None)
        return answer

    return type(kind.__name__, (kind,), {"arrange": arrange, "call": call})


def _hold_to_its_word(kind: type[Operation], limit: Limit, error: Exception | None, proof: str) -> None:
    """Hold what the caller was told: that it was not done, may be repeated, and which limit it was."""
    known = error if isinstance(error, OutlastError) else None if error is None else translate(error)
    assert isinstance(known, DriverUnavailable), f"{kind.name}: {error!r}"
    assert known.retryable
    if limit in _STATE:
        assert known.details["sqlstate"] == proof == _STATE[limit]


async def _set(bench: Bench, limit: Limit, to: str, *own: Any) -> None:
    """Set the limit for the one session of each of the bench's pools, and for connections of an operation's own."""
    sql = f"set {limit} = {to}"
    for conn in own:
        await conn.execute(sql)
    for db in (bench.db, bench.other):
        async with db.raw() as raw:
            await raw.execute(sql)
    async with bench.caller.connect() as connection:
        await connection.exec_driver_sql(sql)
        await connection.commit()


async def _nothing_left_open(bench: Bench) -> None:
    open_ones = (
        "select pid, query from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        " and state like 'idle in transaction%'"
    )
    for store in (bench.straight, bench.apart):
        assert await store.fetch(open_ones) == []


# --- bodies and callers that idle -------------------------------------------------------------------------------------

_IDLE_SOON = text("select set_config('idle_in_transaction_session_timeout', '20ms', true), pg_backend_pid()")


class _Idle:
    """Whoever is in a transaction sets the limit for it, and comes back when the server has ended the session."""

    async def idles(self: Any, session: AsyncSession) -> None:
        pid = (await session.execute(_IDLE_SOON)).one()[1]
        gone = "select not exists (select from pg_stat_activity where pid = $1) as gone"

        async def is_gone() -> bool:
            return bool((await self.fetch(gone, pid))[0]["gone"])

        await eventually(is_gone, "the server ends the session")


class _IdleBody(_Idle, runs.StepTransaction):
    """The body has written its sale and idles; the step and the sale are not there, and the claim is."""

    async def call(self) -> Any:
        step = a_step("book", kind=StepKind.TRANSACTION, value=None)
        async with self.driver.step_transaction(self.job.token, step) as session:
            await session.execute(_SALE, {"id": self.sale})
            await self.idles(session)

    async def again(self) -> Any:
        return await runs.StepTransaction.call(self)


class _IdleBodyOfCallers(_IdleBody):
    """On the caller's own engine."""

    async def call(self) -> Any:
        step = a_step("book", kind=StepKind.TRANSACTION, value=None)
        async with self.driver.step_transaction(self.job.token, step, bind=self.bench.caller) as session:
            await session.execute(_SALE, {"id": self.sale})
            await self.idles(session)


class _IdleBeforeStage(_Idle, outbox.Stage):
    """The caller idles before it stages."""

    async def call(self) -> Any:
        async with AsyncSession(self.bench.caller) as session, session.begin():
            await session.execute(_SALE, {"id": self.sale})
            await self.idles(session)
            await self.outbox.stage(session, self.jobs)

    async def again(self) -> Any:
        return await outbox.Stage.call(self)


class _IdleAfterStage(_IdleBeforeStage):
    """The caller has staged and idles before it commits."""

    async def call(self) -> Any:
        async with AsyncSession(self.bench.caller) as session, session.begin():
            await session.execute(_SALE, {"id": self.sale})
            await self.outbox.stage(session, self.jobs)
            await self.idles(session)


@pytest.mark.parametrize("kind", [_IdleBody, _IdleBodyOfCallers, _IdleBeforeStage, _IdleAfterStage])
async def test_a_transaction_that_idles_too_long_is_rolled_back_and_may_be_repeated(
    make_database: Callable[..., str], folder: Path, kind: type[Operation]
) -> None:
    async with bench_on(make_database, folder) as bench:
        await _refused_and_repeated(bench, kind, Limit.IDLE, _ENDED)


@pytest.mark.parametrize("limit", _STATE)
async def test_a_step_transaction_that_waits_too_long_is_rolled_back_and_may_be_repeated(
    make_database: Callable[..., str], folder: Path, limit: Limit
) -> None:
    async with bench_on(make_database, folder) as bench:
        for table in ("running", "worker", "step"):
            await _refused_and_repeated(bench, _PREPARES, limit, _STATE[limit], locked=f"outlast.{table}")
            await bench.empty()


async def _refused_and_repeated(
    bench: Bench, kind: type[Operation], limit: Limit, proof: str, *, locked: str = ""
) -> None:
    """Have an operation refused, beside somebody who has a table locked; then it is done again, and counts once."""
    heard: Heard = []
    operation = _limited(kind, limit, heard)(bench)
    await operation.arrange()
    before = await bench.fingerprint()
    async with bench.straight.driver._db.raw() as other, other.transaction():
        if locked:
            await other.execute(f"lock table {locked} in access exclusive mode")
        with pytest.raises(kind.errors):
            await operation.call()
    _hold_to_its_word(kind, limit, heard[0], proof)
    assert await bench.fingerprint() == before
    await operation.check(await until_known(operation.again, patience_seconds=_PATIENCE_SECONDS))
    assert await bench.running() == operation.held
    await bench.work_off(operation.held, parked=operation.parked)
    await bench.check(acked=operation.acked)
    await _nothing_left_open(bench)
