"""The tables of schedules as SQLAlchemy metadata. A part of `tables`, apart because jobs touch none of them."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    MetaData,
    PrimaryKeyConstraint,
    Sequence,
    SmallInteger,
    Table,
    Text,
    Uuid,
)

from .table_columns import INSTANT, needed, optional


def add_schedules(meta: MetaData) -> None:
    """Add the tables of schedules."""
    Sequence("declaration_seq", metadata=meta, schema=meta.schema)
    Table(
        "declaration",
        meta,
        *needed(schedule=Text, digest=Text, code_version=Text, cron=Text, tz=Text, document=Text),
        *needed(number=BigInteger, published_at=INSTANT, seen_at=INSTANT),
        PrimaryKeyConstraint("schedule", "digest"),
    )
    Table(
        "schedule",
        meta,
        Column("name", Text, primary_key=True),
        *needed(digest=Text, code_version=Text, cron=Text, tz=Text, document=Text),
        *needed(published_at=INSTANT, seen_at=INSTANT, watermark=INSTANT),
        *optional(paused_at=INSTANT, paused_by=Text, pause_reason=Text),
    )
    Table(
        "occurrence",
        meta,
        *needed(schedule=Text, at=INSTANT, outcome=SmallInteger),
        *optional(why=Text, job_id=Uuid),
        *needed(decided_at=INSTANT),
        *optional(fired_by=Text),
        PrimaryKeyConstraint("schedule", "at"),
        Index("occurrence_decided", "decided_at"),
    )
