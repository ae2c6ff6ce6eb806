"""Staging: rows written on the caller's own connection, inside the caller's transaction.

The one module that knows the connection types of callers. It never begins, commits or rolls back, and sends no
notification there: one inside the caller's transaction would end group commit. Called by `outbox`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Connection,
    DateTime,
    Interval,
    SmallInteger,
    String,
    TextClause,
    Uuid,
    bindparam,
    event,
    text,
)
from sqlalchemy import exc as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.types import TypeEngine

from ...domain.errors import DriverUnavailable, OutboxNoTx, SchemaOutdated, SettingsInvalid, TransactionForeign
from ...domain.job import NewJob
from .database import in_schema
from .sqlstate import translate

Transaction: TypeAlias = (
    AsyncSession | AsyncConnection | Session | Connection | async_scoped_session[AsyncSession] | scoped_session[Session]
)
OnCommit: TypeAlias = Callable[[], None]

_AGAIN = "roll your transaction back, and repeat all of it"
_MIGRATE = "run `outlast migrate up --db` with the address of the database this transaction is on"
_ACCEPTED = "pass an AsyncSession, an AsyncConnection, a Session or a Connection of SQLAlchemy"
_NO_TABLE = ("42P01", "3F000", "42703", "42883")  # neither table, schema, column nor function
_ABORTED, _READ_ONLY, _FORBIDDEN = "25P02", "25006", "42501"
# A session's own notes: that it rings after its commits, and that this transaction has something to ring for.
_HAS_STAGED = "outlast.has_staged"

_TYPES: dict[str, TypeEngine[Any]] = {
    "id": Uuid(),
    "name": String(),
    "queue": String(),
    "priority": SmallInteger(),
    "tenant": String(),
    "payload": String(),
    "max_attempts": SmallInteger(),
    "max_crashes": SmallInteger(),
    "key": String(),
    "fp": BigInteger(),
    "dedupe_for": Interval(),
    "run_at": DateTime(timezone=True),
    "delay": Interval(),
    "max_queue_time": Interval(),
    "deadline": Interval(),
    "timeout_ms": BigInteger(),
    "parent_id": Uuid(),
    "enqueued_by": String(),
    "traceparent": String(),
    "tags": ARRAY(String()),
    "meta": String(),
    "callback": String(),
}
_LIMITS: dict[str, TypeEngine[Any]] = {"limit_names": ARRAY(String()), "limit_keys": ARRAY(String())}


class Stage(NamedTuple):
    """The inserts of one row in a schema, of a job and of a limited one; any driver for PostgreSQL can send them."""

    usual: TextClause
    limited: TextClause


def stage_statement(schema: str) -> Stage:
    """Give the statements for a schema."""
    return Stage(_statement(schema, _TYPES), _statement(schema, _TYPES | _LIMITS))


def _statement(schema: str, types: dict[str, TypeEngine[Any]]) -> TextClause:
    columns = [name for name in types if name != "delay"]
    values = [f":{name}" if name != "run_at" else "coalesce(:run_at, outlast.clock() + :delay)" for name in columns]
    sql = f"insert into outlast.outbox({', '.join(columns)}) values ({', '.join(values)})"  # noqa: S608  our own names
    return text(in_schema(sql, schema)).bindparams(*(bindparam(name, type_=kind) for name, kind in types.items()))


async def stage(statement: Stage, transaction: Transaction, jobs: Sequence[NewJob], on_commit: OnCommit) -> None:
    """Stage jobs in a transaction of whatever kind.

    Raises:
        OutboxNoTx: it is no transaction, or one that cannot be written in: aborted, read-only or over.
        TransactionForeign: it is not on PostgreSQL.
        SchemaOutdated: its database has no outbox.
        SettingsInvalid: its role may not write there.
        DriverUnavailable: its connection is gone, or its statement was; the whole transaction is to be repeated.
    """
    opened = _unwrapped(transaction)
    if isinstance(opened, AsyncSession | AsyncConnection):
        try:
            await opened.run_sync(lambda sync: stage_now(statement, sync, jobs, on_commit))
        except sa.InvalidRequestError as error:  # a connection that was never started, say
            raise _no_transaction(opened, error) from error
    else:
        stage_now(statement, opened, jobs, on_commit)


def stage_now(statement: Stage, transaction: Transaction, jobs: Sequence[NewJob], on_commit: OnCommit) -> None:
    """Stage jobs in a transaction of code that does not await. Raises what `stage` raises."""
    opened = _unwrapped(transaction)
    if not isinstance(opened, Session | Connection):
        raise OutboxNoTx(f"a {type(opened).__name__} cannot be written in without awaiting", fix="await handle.enqueue")
    try:
        connection = opened.connection() if isinstance(opened, Session) else opened
        _check(connection)
        if usual := [_row(job) for job in jobs if not job.limits]:
            connection.execute(statement.usual, usual)
        if limited := [_row(job) | _limits(job) for job in jobs if job.limits]:
            connection.execute(statement.limited, limited)
    except (sa.InvalidRequestError, sa.UnboundExecutionError) as error:
        raise _no_transaction(opened, error) from error
    except (sa.SQLAlchemyError, OSError) as error:
        raise _refused(error) from error
    if isinstance(opened, Session):
        _ring_after_commit(opened, on_commit)


def _unwrapped(transaction: Transaction) -> AsyncSession | AsyncConnection | Session | Connection:
    found: object = transaction() if isinstance(transaction, async_scoped_session | scoped_session) else transaction
    if isinstance(found, AsyncSession | AsyncConnection | Session | Connection):
        return found
    raise OutboxNoTx(f"a {type(found).__name__} is no transaction to stage in", fix=_ACCEPTED)


def _check(connection: Connection) -> None:
    if connection.dialect.name != "postgresql":
        raise TransactionForeign(
            f"the transaction is on {connection.dialect.name}, and the outbox is a table of PostgreSQL",
            fix="stage in a PostgreSQL database, or enqueue after the commit",
        )
    try:
        is_autocommit = connection.dialect.detect_autocommit_setting(connection.connection.dbapi_connection)  # type: ignore[arg-type] # of a connection that is open
    except NotImplementedError:
        is_autocommit = False
    if is_autocommit:
        raise OutboxNoTx(
            "the connection is in AUTOCOMMIT: each statement would be a transaction of its own",
            fix="stage on a connection with another isolation level, or leave session= out to publish at once",
        )


def _row(job: NewJob) -> dict[str, object]:
    return {
        "id": job.id,
        "name": job.name,
        "queue": job.queue,
        "priority": job.priority,
        "tenant": job.tenant,
        "payload": job.payload,
        "max_attempts": job.max_attempts,
        "max_crashes": job.max_crashes,
        "key": job.key,
        "fp": job.fingerprint,
        "dedupe_for": job.dedupe_for,
        "run_at": job.run_at,
        "delay": job.delay,
        "max_queue_time": job.max_queue_time,
        "deadline": job.deadline,
        "timeout_ms": None if job.timeout is None else max(1, round(job.timeout.total_seconds() * 1000)),
        "parent_id": job.parent_id,
        "enqueued_by": job.enqueued_by,
        "traceparent": job.traceparent,
        "tags": list(job.tags) or None,
        "meta": job.meta,
        "callback": job.callback,
    }


def _limits(job: NewJob) -> dict[str, object]:
    names, keys = zip(*job.limits, strict=True)
    return {"limit_names": list(names), "limit_keys": list(keys)}


def _ring_after_commit(session: Session, on_commit: OnCommit) -> None:
    """Ring once the outermost transaction has committed."""
    if _HAS_STAGED not in session.info:

        def committed(its: Session) -> None:
            # A savepoint's release tells of itself here, too: nothing is visible yet.
            if not its.in_nested_transaction() and its.info.get(_HAS_STAGED):
                its.info[_HAS_STAGED] = False
                on_commit()

        def rolled_back(its: Session, *_: object) -> None:
            if not its.in_nested_transaction():
                its.info[_HAS_STAGED] = False

        event.listen(session, "after_commit", committed)
        event.listen(session, "after_rollback", rolled_back)
    session.info[_HAS_STAGED] = True


def _no_transaction(opened: object, error: Exception) -> OutboxNoTx:
    said = str(error).partition("\n")[0]
    if isinstance(error, sa.PendingRollbackError):
        return _aborted(f"the {type(opened).__name__} must be rolled back before it is used again: {said}")
    return OutboxNoTx(
        f"the {type(opened).__name__} has no transaction to stage in: {said}",
        fix="begin a transaction first; of a session with several databases pass the connection to stage on",
    )


def _aborted(cause: str) -> OutboxNoTx:
    return OutboxNoTx(cause, fix="roll back (to a savepoint from before the failure, or the whole), then enqueue again")


def _refused(error: sa.SQLAlchemyError | OSError) -> Exception:
    """Say what the caller's database refused, with what helps in a transaction of the caller's.

    Other drivers than asyncpg only tell its code. Nothing is repeated here: what failed has ended the transaction.
    """
    known = translate(error)
    said = error.orig if isinstance(error, sa.DBAPIError) else None
    code = getattr(said, "sqlstate", None) or getattr(said, "pgcode", None)
    if isinstance(known, SchemaOutdated) or code in _NO_TABLE:
        return SchemaOutdated("the database of the transaction has no outbox that this code knows", fix=_MIGRATE)
    if code == _ABORTED:
        return _aborted("the transaction is aborted: a statement before this one failed in it")
    if code == _READ_ONLY:
        return OutboxNoTx(
            "the transaction only reads",
            fix="begin a transaction that may write, on the primary server, and enqueue in it",
        )
    if code == _FORBIDDEN:
        return SettingsInvalid(
            "the role of the transaction may not write into the outbox",
            fix="grant it usage on the schema of the outbox, and insert on its table `outbox`",
        )
    if isinstance(known, DriverUnavailable):
        return DriverUnavailable(known.cause, fix=_AGAIN, **known.details)
    return error if known is None else known
