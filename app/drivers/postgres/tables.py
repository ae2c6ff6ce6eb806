"""The schema as SQLAlchemy metadata: what `alembic check` compares the database with.

Owns column names, types, keys and indexes; the DDL itself, with its checks and storage options, is the migrations'.
Holds no queries. Read by `migrations` and by `alembic/env.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Identity,
    Index,
    Integer,
    Interval,
    MetaData,
    PrimaryKeyConstraint,
    Sequence,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.types import TypeEngine

DEFAULT_SCHEMA = "outlast"

# The revision this code needs at least. Revision ids sort as they follow each other, so an older schema compares lower.
REQUIRED_REVISION = "0005"

_Type = type[TypeEngine[Any]] | TypeEngine[Any]


def metadata(schema: str = DEFAULT_SCHEMA) -> MetaData:
    """Give the tables of one schema."""
    meta = MetaData(schema=schema)
    Sequence("token_seq", metadata=meta, schema=schema)
    _workers(meta)
    _jobs(meta)
    _tokens(meta)
    _on_demand(meta)
    _outbox(meta)
    return meta


def _workers(meta: MetaData) -> None:
    Table(
        "worker",
        meta,
        Column("id", Integer, Identity(always=True), primary_key=True),
        Column("boot_id", Uuid, nullable=False, unique=True),
        *_needed(host=Text, pid=Integer, code_version=Text, queues=ARRAY(Text), concurrency=Integer, lease_ms=Integer),
        *_needed(started_at=_INSTANT, renewed_at=_INSTANT, lease_until=_INSTANT),
        *_optional(lost_at=_INSTANT, closed_at=_INSTANT, drain_phase=Text, wakeup=Text),
        *_optional(drain_asked_at=_INSTANT, drain_asked_by=Text, drain_reason=Text, drain_deadline_at=_INSTANT),
    )
    Table(
        "drain",
        meta,
        Column("worker", Integer, primary_key=True, autoincrement=False),
        *_needed(host=Text, code_version=Text, reason=Text, started_at=_INSTANT, ended_at=_INSTANT),
        *_needed(job_ids=ARRAY(Uuid), claim_nos=ARRAY(Integer), names=ARRAY(Text), fates=ARRAY(Text)),
        *_needed(ignored=ARRAY(Boolean)),
    )
    Table(
        "job_name",
        meta,
        Column("id", Integer, Identity(always=True), primary_key=True),
        Column("name", Text, nullable=False, unique=True),
    )
    Table(
        "job_type",
        meta,
        Column("name", Text, primary_key=True),
        *_needed(code_version=Text, document=Text, published_at=_INSTANT),
    )
    Table(
        "queue",
        meta,
        Column("name", Text, primary_key=True),
        *_optional(paused_at=_INSTANT, paused_by=Text, pause_reason=Text),
    )


def _jobs(meta: MetaData) -> None:
    Table(
        "job",
        meta,
        Column("id", Uuid, primary_key=True),
        *_optional(seq=BigInteger),
        *_needed(name_id=Integer, queue=Text, priority=SmallInteger, tenant=Text, payload=Text),
        *_needed(max_attempts=SmallInteger, max_crashes=SmallInteger, created_at=_INSTANT),
        *_optional(
            run_at=_INSTANT, run_id=Uuid, key=Text, key_hash=Uuid, fp=BigInteger, source_id=Uuid, parent_id=Uuid
        ),
        *_optional(deadline_at=_INSTANT, timeout_ms=BigInteger, enqueued_by=Text, traceparent=Text),
        *_optional(tags=ARRAY(Text), meta=Text),
    )


def _tokens(meta: MetaData) -> None:
    Table(
        "ready",
        meta,
        *_token(),
        *_needed(seq=BigInteger, job_id=Uuid, moved=Boolean),
        *_optional(since=_INSTANT),
        PrimaryKeyConstraint("queue", "rank", "seq"),
        Index("ready_moved", "job_id", postgresql_where=text("moved")),
    )
    Table(
        "waiting",
        meta,
        Column("job_id", Uuid, primary_key=True),
        *_needed(due_at=_INSTANT),
        *_token(),
        *_needed(reason=SmallInteger),
        Index("waiting_due", "due_at"),
    )
    Table(
        "running",
        meta,
        Column("job_id", Uuid, primary_key=True),
        *_needed(seq=BigInteger, worker=Integer),
        *_token(),
        *_needed(claimed_at=_INSTANT, alone=Boolean, abandoned=Boolean),
    )
    Table("held", meta, Column("job_id", Uuid, primary_key=True), *_token(), *_needed(reason=Text, held_at=_INSTANT))
    Table(
        "finished",
        meta,
        Column("job_id", Uuid, primary_key=True),
        *_needed(state=SmallInteger, attempt=SmallInteger, claim_no=Integer, crashes=SmallInteger),
        *_needed(interrupts=SmallInteger, finished_at=_INSTANT, late=Boolean),
        *_optional(seq=BigInteger, worker=Integer, started_at=_INSTANT, result=Text, reason=Text),
        Index("finished_bad", "job_id", postgresql_where=text("state <> 0")),
    )


def _on_demand(meta: MetaData) -> None:
    Table(
        "live_key",
        meta,
        Column("hash", Uuid, primary_key=True),
        *_needed(job_id=Uuid, fp=BigInteger, ended=Boolean),
        *_optional(expires_at=_INSTANT),
        Index("live_key_ended", "expires_at", postgresql_where=text("ended")),
    )
    Table(
        "source",
        meta,
        Column("source_id", Uuid, primary_key=True),
        *_needed(job_id=Uuid, expires_at=_INSTANT),
        Index("source_expires", "expires_at"),
    )
    Table(
        "expiry",
        meta,
        *_needed(job_id=Uuid, kind=SmallInteger, at=_INSTANT),
        PrimaryKeyConstraint("job_id", "kind"),
        Index("expiry_at", "at"),
    )
    Table(
        "attempt",
        meta,
        *_needed(job_id=Uuid, number=Integer, outcome=Text, cause=Text, counted=Boolean, ended_at=_INSTANT),
        *_optional(worker=Integer, host=Text, code_version=Text, started_at=_INSTANT, step=Text),
        *_optional(error_type=Text, error_message=Text, error_code=Text, traceback=Text),
        PrimaryKeyConstraint("job_id", "number"),
    )


def _outbox(meta: MetaData) -> None:
    Table(
        "outbox",
        meta,
        Column("id", Uuid, primary_key=True),
        *_needed(staged_at=_INSTANT, state=SmallInteger, claims=Integer),
        *_optional(claimed_by=Uuid, lease_until=_INSTANT),
        *_needed(name=Text, queue=Text, priority=SmallInteger, tenant=Text, payload=Text),
        *_needed(max_attempts=SmallInteger, max_crashes=SmallInteger, fp=BigInteger),
        *_optional(key=Text, dedupe_for=Interval, run_at=_INSTANT, max_queue_time=Interval, deadline=Interval),
        *_optional(timeout_ms=BigInteger, parent_id=Uuid, enqueued_by=Text, traceparent=Text),
        *_optional(tags=ARRAY(Text), meta=Text, refused_at=_INSTANT, refused_code=Text, refused_why=Text),
        Index("outbox_staged", "staged_at", postgresql_where=text("state = 0")),
        Index("outbox_claimed", "lease_until", postgresql_where=text("state = 1")),
        Index("outbox_quarantined", "refused_at", postgresql_where=text("state = 2")),
    )


def _token() -> Iterator[Column[Any]]:
    yield from _needed(queue=Text, rank=SmallInteger, name_id=Integer, attempt=SmallInteger, claim_no=Integer)
    yield from _needed(crashes=SmallInteger, interrupts=SmallInteger)


_INSTANT = DateTime(timezone=True)


def _needed(**columns: _Type) -> Iterator[Column[Any]]:
    return (Column(name, kind, nullable=False) for name, kind in columns.items())


def _optional(**columns: _Type) -> Iterator[Column[Any]]:
    return (Column(name, kind, nullable=True) for name, kind in columns.items())
