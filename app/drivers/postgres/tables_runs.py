"""The tables of durable runs as SQLAlchemy metadata.

A part of `tables`, apart because a job that uses no step touches none of them.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Sequence,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)

from .table_columns import INSTANT, needed, optional, token


def add_runs(meta: MetaData) -> None:
    """Add the tables of runs to a schema's."""
    for sequence in ("history_seq", "event_seq"):
        Sequence(sequence, metadata=meta, schema=meta.schema)
    _steps(meta)
    _waits(meta)
    _notes(meta)
    Table(
        "event",
        meta,
        Column("seq", BigInteger, primary_key=True, autoincrement=False),
        Column("id", Uuid, nullable=False, unique=True),
        *needed(tenant=Text, name=Text, key=Text, payload=Text, emitted_at=INSTANT, matched=Integer),
        *optional(emitted_by=Text),
        Index("event_key", "tenant", "name", "key", "seq"),
        Index("event_since", "tenant", "name", "key", "emitted_at"),
    )
    Table(
        "handed",
        meta,
        Column("job_id", Uuid, primary_key=True),
        *needed(version=Text, until_at=INSTANT, claim_no=Integer, reason=Text, or_dead=Boolean),
    )


def _steps(meta: MetaData) -> None:
    Table(
        "step",
        meta,
        *needed(run_id=Uuid, name=Text, kind=SmallInteger, branch=Text, number=Integer, seq=BigInteger),
        *needed(claim_no=Integer, code_version=Text, started_at=INSTANT, ended_at=INSTANT),
        *optional(value=Text, event_seq=BigInteger, child_id=Uuid),
        PrimaryKeyConstraint("run_id", "name"),
    )


def _waits(meta: MetaData) -> None:
    Table(
        "wait",
        meta,
        *needed(job_id=Uuid, name=Text, kind=SmallInteger, branch=Text, number=Integer, began_at=INSTANT),
        *needed(code_version=Text, awaited=Boolean),
        *optional(due_at=INSTANT, tenant=Text, event=Text, event_key=Text, child_id=Uuid),
        PrimaryKeyConstraint("job_id", "name"),
        Index("wait_due", "due_at", postgresql_where=text("due_at is not null")),
        Index("wait_event", "tenant", "event", "event_key", postgresql_where=text("event is not null")),
        Index("wait_child", "child_id", postgresql_where=text("child_id is not null")),
    )
    Table(
        "suspended",
        meta,
        Column("job_id", Uuid, primary_key=True),
        *token(),
        *needed(since=INSTANT, reason=SmallInteger),
    )


def _notes(meta: MetaData) -> None:
    Table(
        "progress",
        meta,
        Column("job_id", Uuid, primary_key=True),
        *needed(value=Double, at=INSTANT, claim_no=Integer),
        *optional(message=Text),
    )
    Table(
        "run_line",
        meta,
        *needed(job_id=Uuid, seq=BigInteger, at=INSTANT, claim_no=Integer, message=Text),
        PrimaryKeyConstraint("job_id", "seq"),
    )
