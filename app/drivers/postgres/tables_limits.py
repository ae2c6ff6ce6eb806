"""The tables of limits and of turns as SQLAlchemy metadata. A part of `tables`: jobs without either touch none."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    Float,
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

# The mark in the rank of the tokens of limited jobs and of fair queues; `ready` sends those that have it into the gate.
LIMITED = 32


def add_limits(meta: MetaData) -> None:
    """Add the tables of limits and of turns."""
    Table(
        "gate",
        meta,
        Column("job_id", Uuid, primary_key=True),
        *token(),
        *needed(seq=BigInteger, since=INSTANT),
        *optional(parked=Uuid, why=Text),
        *needed(tenant=Text),
        Index("gate_open", "queue", "tenant", "rank", "seq", postgresql_where=text("parked is null")),
        Index("gate_parked", "parked", "queue", "tenant", "rank", "seq", postgresql_where=text("parked is not null")),
    )
    Table(
        "limit_key",
        meta,
        Column("hash", Uuid, primary_key=True),
        *needed(name=Text, limit=Text, key=Text, used_at=INSTANT),
        *optional(tokens=Float(53), filled_at=INSTANT, open_at=INSTANT),
        Index("limit_key_open", "open_at", postgresql_where=text("open_at is not null")),
        Index("limit_key_used", "used_at"),
    )
    Table(
        "slot",
        meta,
        *needed(hash=Uuid, job_id=Uuid, seq=BigInteger, worker=Integer, claim_no=Integer, taken_at=INSTANT),
        PrimaryKeyConstraint("hash", "job_id", "seq"),
        Index("slot_job", "job_id"),
    )
    Table(
        "limit_rule",
        meta,
        *needed(name=Text, limit=Text),
        *optional(declared=Integer, per=Interval, override=Integer, set_by=Text, set_at=INSTANT),
        PrimaryKeyConstraint("name", "limit"),
    )
    Sequence("limit_version_seq", metadata=meta, schema=meta.schema)
    Table(
        "limit_version",
        meta,
        *needed(name=Text, code_version=Text, number=BigInteger, limits=ARRAY(Text), ns=ARRAY(Integer)),
        *needed(pers=ARRAY(Interval), stands=Boolean, shown_at=INSTANT),
        PrimaryKeyConstraint("name", "code_version"),
    )
    Table(
        "turn",
        meta,
        *needed(queue=Text, tenant=Text, starts=BigInteger, finish=Float(53), started=Float(53), used_at=INSTANT),
        *optional(weight=SmallInteger),
        PrimaryKeyConstraint("queue", "tenant"),
        Index("turn_started", "queue", "started"),
    )
