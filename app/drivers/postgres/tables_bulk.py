"""The tables of bulk operations as SQLAlchemy metadata. A part of `tables`, apart because jobs touch none of them."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from .table_columns import INSTANT, needed, optional


def add_bulk(meta: MetaData) -> None:
    """Add the tables of bulk operations."""
    Table(
        "bulk",
        meta,
        Column("id", Uuid, primary_key=True),
        *needed(action=Text, state=SmallInteger, made_by=Text, by_ids=Boolean, created_at=INSTANT),
        *optional(tenant=Text, reason=Text, states=ARRAY(Text), name=Text, queue=Text),
        *optional(created_after=INSTANT, created_before=INSTANT, ended_at=INSTANT, ended_by=Text),
        *optional(priority=SmallInteger, run_at=INSTANT, dead_reason=Text, error_type=Text, error_code=Text),
        *needed(selected=Integer, done=Integer, changed=Integer, failed=Integer, at_round=Integer, at_job=Uuid),
        Index("bulk_running", "id", postgresql_where=text("state = 0")),
        Index("bulk_ended", "ended_at", postgresql_where=text("ended_at is not null")),
    )
    Table(
        "bulk_item",
        meta,
        *needed(bulk_id=Uuid, job_id=Uuid, round=Integer),
        *optional(verdict=SmallInteger, code=Text, detail=Text, decided_at=INSTANT),
        PrimaryKeyConstraint("bulk_id", "job_id"),
        Index("bulk_item_left", "bulk_id", "round", "job_id", postgresql_where=text("verdict is null")),
        Index("bulk_item_undone", "bulk_id", "verdict", "job_id", postgresql_where=text("verdict > 0")),
    )
