"""The schema as SQLAlchemy metadata: what `alembic check` compares the database with.

Owns column names, types, keys and indexes; the DDL itself, with its checks and storage options, is the migrations'.
Holds no queries. Read by `migrations` and by `alembic/env.py`.
"""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
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

from .table_columns import INSTANT, needed, optional, token
from .tables_audit import add_audit
from .tables_bulk import add_bulk
from .tables_keys import add_keys
from .tables_limits import add_limits
from .tables_moves import add_moves
from .tables_requests import add_requests
from .tables_runs import add_runs
from .tables_schedules import add_schedules
from .tables_webhooks import add_webhooks

DEFAULT_SCHEMA = "outlast"

# The revision this code needs at least. Revision ids sort as they follow each other, so an older schema compares lower.
REQUIRED_REVISION = "0024"


def metadata(schema: str = DEFAULT_SCHEMA) -> MetaData:
    """Give the tables of one schema."""
    meta = MetaData(schema=schema)
    Sequence("token_seq", metadata=meta, schema=schema)
    _workers(meta)
    _jobs(meta)
    _tokens(meta)
    _on_demand(meta)
    _outbox(meta)
    add_runs(meta)
    add_schedules(meta)
    _flow(meta)
    _purge(meta)
    add_audit(meta)
    add_bulk(meta)
    add_keys(meta)
    add_limits(meta)
    add_requests(meta)
    add_webhooks(meta)
    add_moves(meta)
    return meta


def _workers(meta: MetaData) -> None:
    Table(
        "worker",
        meta,
        Column("id", Integer, Identity(always=True), primary_key=True),
        Column("boot_id", Uuid, nullable=False, unique=True),
        *needed(host=Text, pid=Integer, code_version=Text, queues=ARRAY(Text), concurrency=Integer, lease_ms=Integer),
        *needed(started_at=INSTANT, renewed_at=INSTANT, lease_until=INSTANT),
        *optional(lost_at=INSTANT, closed_at=INSTANT, drain_phase=Text, wakeup=Text),
        *optional(drain_asked_at=INSTANT, drain_asked_by=Text, drain_reason=Text, drain_deadline_at=INSTANT),
        *optional(names=ARRAY(Text)),
    )
    Table(
        "drain",
        meta,
        Column("worker", Integer, primary_key=True, autoincrement=False),
        *needed(host=Text, code_version=Text, reason=Text, started_at=INSTANT, ended_at=INSTANT),
        *needed(job_ids=ARRAY(Uuid), claim_nos=ARRAY(Integer), names=ARRAY(Text), fates=ARRAY(Text)),
        *needed(ignored=ARRAY(Boolean)),
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
        *needed(code_version=Text, document=Text, published_at=INSTANT),
    )
    Table(
        "queue",
        meta,
        Column("name", Text, primary_key=True),
        *optional(paused_at=INSTANT, paused_by=Text, pause_reason=Text, paused_until=INSTANT),
        *optional(concurrency=Integer, max_depth=Integer, free=Integer, free_until=INSTANT),
        *needed(fair=Boolean),
        Index("queue_asked", "name", postgresql_where=text("max_depth is not null or fair")),
    )


def _jobs(meta: MetaData) -> None:
    Table(
        "job",
        meta,
        Column("id", Uuid, primary_key=True),
        *optional(seq=BigInteger),
        *needed(name_id=Integer, queue=Text, priority=SmallInteger, tenant=Text, payload=Text),
        *needed(max_attempts=SmallInteger, max_crashes=SmallInteger, created_at=INSTANT),
        *optional(run_at=INSTANT, run_id=Uuid, key=Text, key_hash=Uuid, fp=BigInteger, source_id=Uuid, parent_id=Uuid),
        *optional(deadline_at=INSTANT, timeout_ms=BigInteger, enqueued_by=Text, traceparent=Text),
        *optional(tags=ARRAY(Text), meta=Text, limit_names=ARRAY(Text), limit_keys=ARRAY(Text), events_from=INSTANT),
        *optional(callback=Text),
        Index("job_parent", "parent_id", "id", postgresql_where=text("parent_id is not null")),
        Index("job_key", "key", "id", postgresql_where=text("key is not null")),
        Index("job_tenant", "tenant", "id", postgresql_where=text("tenant <> 'default'")),
    )
    # Kept by triggers of `job`.
    Table("tag", meta, *needed(tag=Text, job_id=Uuid), PrimaryKeyConstraint("tag", "job_id"))


def _tokens(meta: MetaData) -> None:
    Table(
        "ready",
        meta,
        *token(),
        *needed(seq=BigInteger, job_id=Uuid, moved=Boolean),
        *optional(since=INSTANT),
        PrimaryKeyConstraint("queue", "rank", "seq"),
        Index("ready_moved", "job_id", postgresql_where=text("moved")),
    )
    Table(
        "waiting",
        meta,
        Column("job_id", Uuid, primary_key=True),
        *needed(due_at=INSTANT),
        *token(),
        *needed(reason=SmallInteger),
        Index("waiting_due", "due_at", "job_id"),
    )
    Table(
        "running",
        meta,
        Column("job_id", Uuid, primary_key=True),
        *needed(seq=BigInteger, worker=Integer),
        *token(),
        *needed(claimed_at=INSTANT, alone=Boolean, abandoned=Boolean),
    )
    Table(
        "held",
        meta,
        Column("job_id", Uuid, primary_key=True),
        *token(),
        *needed(reason=Text, held_at=INSTANT),
        *optional(version=Text),
        Index("held_version", "version", "queue", "held_at", postgresql_where=text("version is not null")),
    )
    Table(
        "finished",
        meta,
        Column("job_id", Uuid, primary_key=True),
        *needed(state=SmallInteger, attempt=SmallInteger, claim_no=Integer, crashes=SmallInteger),
        *needed(interrupts=SmallInteger, finished_at=INSTANT, late=Boolean),
        *optional(seq=BigInteger, worker=Integer, started_at=INSTANT, result=Text, reason=Text),
        Index("finished_bad", "job_id", postgresql_where=text("state <> 0")),
        Index("finished_bad_at", "finished_at", "job_id", postgresql_where=text("state <> 0")),
    )


def _on_demand(meta: MetaData) -> None:
    Table(
        "live_key",
        meta,
        Column("hash", Uuid, primary_key=True),
        *needed(job_id=Uuid, fp=BigInteger, ended=Boolean),
        *optional(expires_at=INSTANT),
        Index("live_key_ended", "expires_at", postgresql_where=text("ended")),
    )
    Table(
        "source",
        meta,
        Column("source_id", Uuid, primary_key=True),
        *needed(job_id=Uuid, expires_at=INSTANT),
        Index("source_expires", "expires_at"),
    )
    Table(
        "expiry",
        meta,
        *needed(job_id=Uuid, kind=SmallInteger, at=INSTANT),
        PrimaryKeyConstraint("job_id", "kind"),
        Index("expiry_at", "at"),
    )
    Table(
        "attempt",
        meta,
        *needed(job_id=Uuid, number=Integer, outcome=Text, cause=Text, counted=Boolean, ended_at=INSTANT),
        *optional(worker=Integer, host=Text, code_version=Text, started_at=INSTANT, step=Text),
        *optional(error_type=Text, error_message=Text, error_code=Text, traceback=Text),
        PrimaryKeyConstraint("job_id", "number"),
        Index("attempt_error", "error_code", "job_id", "number", postgresql_where=text("error_code is not null")),
    )


def _flow(meta: MetaData) -> None:
    Table(
        "flow",
        meta,
        *needed(tier=Integer, at=INSTANT, name=Text, queue=Text),
        *needed(counts=ARRAY(Integer), waits=ARRAY(Integer), runs=ARRAY(Integer)),
        PrimaryKeyConstraint("tier", "at", "name", "queue"),
    )


def _purge(meta: MetaData) -> None:
    Table(
        "purge_mark",
        meta,
        Column("kind", Text, primary_key=True),
        *optional(after=Text, low=Integer, lowest=Integer, began_at=INSTANT, round_at=INSTANT),
        *needed(made_at=INSTANT, rests_until=INSTANT),
    )


def _outbox(meta: MetaData) -> None:
    Table(
        "outbox",
        meta,
        Column("id", Uuid, primary_key=True),
        *needed(staged_at=INSTANT, state=SmallInteger, claims=Integer),
        *optional(claimed_by=Uuid, lease_until=INSTANT),
        *needed(name=Text, queue=Text, priority=SmallInteger, tenant=Text, payload=Text),
        *needed(max_attempts=SmallInteger, max_crashes=SmallInteger, fp=BigInteger),
        *optional(key=Text, dedupe_for=Interval, run_at=INSTANT, max_queue_time=Interval, deadline=Interval),
        *optional(timeout_ms=BigInteger, parent_id=Uuid, enqueued_by=Text, traceparent=Text),
        *optional(tags=ARRAY(Text), meta=Text, refused_at=INSTANT, refused_code=Text, refused_why=Text),
        *optional(limit_names=ARRAY(Text), limit_keys=ARRAY(Text), callback=Text),
        Index("outbox_staged", "staged_at", postgresql_where=text("state = 0")),
        Index("outbox_claimed", "lease_until", postgresql_where=text("state = 1")),
        Index("outbox_quarantined", "refused_at", postgresql_where=text("state = 2")),
    )
