"""`step_transaction`: a session whose commit writes the caller's changes and the step together, or neither.

The body writes; then the claim is fenced on that very connection, for key share, and the step is inserted; then it
commits, and is ended by the server if it does not soon. Whoever takes the claim over waits for that commit, or the
fence finds it gone. On another database than the store's the fence cannot be taken, and nothing is written. Called by
the runner of steps.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from sqlalchemy import BigInteger, Integer, Interval, SmallInteger, String, TextClause, Uuid, bindparam, event, text
from sqlalchemy import exc as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session

from ...domain.errors import (
    DriverUnavailable,
    LeaseLost,
    OutlastError,
    RequestInvalid,
    SchemaOutdated,
    TransactionForeign,
)
from ...domain.job import ClaimToken
from ...domain.step import NewStep
from ...domain.step_errors import TransactionCut
from .connect import IDLE_IN_TRANSACTION_TIMEOUT, TRANSACTION_TIMEOUT
from .database import Database
from .resolve import KIND_CODES
from .sqlstate import CHECK_DATABASE, translate


def _limited_to(limit: str) -> str:
    """Give what bounds the rest of a transaction, on a server that can; 0 is no bound."""
    set_it = f"set_config('transaction_timeout', '{limit}', true)"
    return f"case when current_setting('transaction_timeout', true) is not null then {set_it} end"


_LIVE = "w.lost_at is null and w.closed_at is null and w.lease_until > outlast.clock()"
# While the body works it may pause for long; from the fence on the claim's row is locked, and a worker that is frozen
# with it, its connection open, would keep every reaper from the claim: for its lease at most, as any session of ours.
_PAUSE = f"""(
  select least(w.lease_ms, {IDLE_IN_TRANSACTION_TIMEOUT.seconds}000) from outlast.worker w
  where w.id = :worker)"""  # noqa: S608  a number of ours
FENCE = f"""
select r.job_id, set_config('idle_in_transaction_session_timeout', {_PAUSE}::text, true),
  {_limited_to(f"{TRANSACTION_TIMEOUT.seconds}s")}
from outlast.running r
where r.job_id = :job_id and r.seq = :seq and r.claim_no = :claim_no
  and r.worker = (select w.id from outlast.worker w where w.id = :worker and {_LIVE})
for key share"""  # noqa: S608  a fragment of this module
RECORD = """
insert into outlast.step(run_id, name, kind, branch, number, value, claim_no, code_version, started_at)
select coalesce(j.run_id, j.id), :name, :kind, :branch, :number, :value, :claim_no,
  (select w.code_version from outlast.worker w where w.id = :worker), outlast.clock() - :lasted
from outlast.job j where j.id = :job_id
on conflict do nothing"""
_HELD = f"""
select exists (
  select from outlast.running r where r.job_id = $1 and r.seq = $2 and r.claim_no = $3
    and r.worker = (select w.id from outlast.worker w where w.id = $4 and {_LIVE}))"""  # noqa: S608  same

# What sessions of ours start with is for our statements: the caller's are planned, and may pause, as anybody's.
_AS_ANYBODYS = text(
    "select set_config('enable_seqscan', 'on', true), set_config('enable_bitmapscan', 'on', true),"
    " set_config('plan_cache_mode', 'auto', true), set_config('idle_in_transaction_session_timeout', '300s', true),"
    f" {_limited_to('0')}"
)
_READ_COMMITTED = {"isolation_level": "READ COMMITTED"}

_TYPES: dict[str, Any] = {
    "job_id": Uuid(),
    "seq": BigInteger(),
    "claim_no": Integer(),
    "worker": Integer(),
    "name": String(),
    "kind": SmallInteger(),
    "branch": String(),
    "number": Integer(),
    "value": String(),
    "lasted": Interval(),
}
_ENGINE_OF_STORE = "pass an AsyncEngine or an async_sessionmaker of the store's own database"
_CUT = "the database went away under a step's transaction"
_GOES_AWAY = ("08", "57P01", "57P02", "57P03")
_USE_RUN = "use the store's own database for this step, or ctx.step.run for work on another one"


@asynccontextmanager
async def step_transaction(
    db: Database, token: ClaimToken, step: NewStep, *, bind: object | None = None
) -> AsyncIterator[AsyncSession]:
    """Give a session; leaving the context commits it with the step, leaving it by an exception rolls it back.

    Errors of the body leave as they are, but those of a connection that broke under it. Not repeated: whether a commit
    whose reply was lost took place, the history tells.

    Raises:
        LeaseLost: the claim is gone, or its worker's lease has passed; nothing was written.
        TransactionForeign: the session is not on the store's database; nothing was written.
        RequestInvalid: the body committed by itself, which is refused.
        TransactionCut: the database went away before the end. Unless the commit was on its way, nothing was written.
        DriverUnavailable: the database could not be reached.
    """
    is_fenced = False
    async with AsyncExitStack() as stack:
        if bind is None:
            # Verbs need connections while bodies have some.
            await stack.enter_async_context(db.step_sessions)
        session = await stack.enter_async_context(_session(db, bind))
        connection = await _begin(db, session, is_own=bind is None)
        guard = _refuse_commits(session)
        try:
            yield session
            event.remove(session.sync_session, "before_commit", guard)
            await session.flush()
            is_fenced = await _commit_with(db, session, token, step)
        except Exception as error:
            if _is_cut(connection, error):
                raise TransactionCut(_CUT, fix=CHECK_DATABASE) from error
            raise
    if not is_fenced:
        raise await _why_not(db, token)


def _session(db: Database, bind: object | None) -> AsyncSession:
    if bind is None:
        return AsyncSession(db.engine, expire_on_commit=False)
    if isinstance(bind, async_sessionmaker):
        made = bind()
        if isinstance(made, AsyncSession):
            return made
    if isinstance(bind, AsyncEngine):
        return AsyncSession(bind, expire_on_commit=False)
    raise TransactionForeign(f"a {type(bind).__name__} gives no session for a step", fix=_ENGINE_OF_STORE)


def _is_cut(connection: AsyncConnection, error: Exception) -> bool:
    """Say whether a transaction ends because its connection, or its server, is gone: not for what it did itself."""
    seen = error.__cause__ if isinstance(error, DriverUnavailable) else error
    if isinstance(seen, sa.DBAPIError) and seen.connection_invalidated:
        return True
    known = error if isinstance(error, OutlastError) else translate(error)
    if not isinstance(known, DriverUnavailable):
        return False
    # The server's last word comes before the connection's end.
    return connection.invalidated or str(known.details.get("sqlstate", "")).startswith(_GOES_AWAY)


async def _begin(db: Database, session: AsyncSession, *, is_own: bool) -> AsyncConnection:
    """Begin and give the connection; where each statement would commit by itself, at a level at which none does."""
    try:
        if is_own:
            with db.lending():
                connection = await session.connection(execution_options=_READ_COMMITTED)
            await connection.execute(_AS_ANYBODYS)
            return connection
        connection = await session.connection()
        if connection.dialect.name != "postgresql":
            raise TransactionForeign(f"the session is on {connection.dialect.name}", fix=_USE_RUN)
        if await _is_autocommit(connection):
            await session.rollback()
            connection = await session.connection(execution_options=_READ_COMMITTED)
        return connection
    except sa.UnboundExecutionError as error:
        raise TransactionForeign("the session is bound to no database by itself", fix=_ENGINE_OF_STORE) from error
    except (sa.SQLAlchemyError, OSError) as error:
        raise translate(error) or error from error


async def _is_autocommit(connection: AsyncConnection) -> bool:
    raw = await connection.get_raw_connection()
    try:
        return connection.dialect.detect_autocommit_setting(raw.dbapi_connection)  # type: ignore[arg-type] # open
    except NotImplementedError:
        return False


def _refuse_commits(session: AsyncSession) -> Any:  # noqa: ANN401  a listener, to be taken away again
    def refuse(its: Session) -> None:
        if not its.in_nested_transaction():
            raise RequestInvalid(
                "the body of a step's transaction committed it", fix="leave the commit to the end of the block"
            )

    event.listen(session.sync_session, "before_commit", refuse)
    return refuse


async def _commit_with(db: Database, session: AsyncSession, token: ClaimToken, step: NewStep) -> bool:
    """Fence, record and commit; False: not fenced, and rolled back."""
    try:
        connection = await session.connection()
        fence = {
            "job_id": token.job_id,
            "seq": token.fence,
            "claim_no": token.claim_no,
            "worker": token.worker_id,
        }
        if (await connection.execute(_statement(db, FENCE, *fence), fence)).first() is None:
            await session.rollback()
            return False
        recorded = {
            "name": step.name,
            "kind": KIND_CODES[step.kind],
            "branch": step.place.branch,
            "number": step.place.number,
            "value": step.value,
            "lasted": step.lasted,
        }
        del fence["seq"]
        await connection.execute(_statement(db, RECORD, *fence, *recorded), fence | recorded)
        await session.commit()
    except (sa.SQLAlchemyError, OSError) as error:
        known = translate(error)
        if isinstance(known, SchemaOutdated):
            raise _foreign("its database has no tables of the store") from error
        # A constraint that is checked at the commit is the caller's own, and so is its error.
        raise known if isinstance(known, OutlastError) and known.retryable else error from error
    return True


def _statement(db: Database, sql: str, *names: str) -> TextClause:
    return text(db.in_schema(sql)).bindparams(*(bindparam(name, type_=_TYPES[name]) for name in names))


async def _why_not(db: Database, token: ClaimToken) -> OutlastError:
    """Say why the fence was not found: asked over the store's own connection, the claim may be held all the same."""
    binds = token.job_id, token.fence, token.claim_no, token.worker_id
    if await db.run(lambda conn: conn.fetchval(db.in_schema(_HELD), *binds)):
        return _foreign("the claim is not in its database")
    return LeaseLost(
        f"the claim of job {token.job_id} is gone, so the step's transaction was rolled back",
        fix="nothing has to be done: whoever holds the job now runs the step",
    )


def _foreign(why: str) -> TransactionForeign:
    return TransactionForeign(f"the session is not on the store's database: {why}", fix=_USE_RUN)
