"""The table of jobs on their way to another database as SQLAlchemy metadata. Apart from `tables`: no job needs it."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Identity, Index, MetaData, Table, Text, Uuid, text

from .table_columns import INSTANT, needed, optional


def add_moves(meta: MetaData) -> None:
    """Add the table of jobs on their way."""
    Table(
        "moving",
        meta,
        Column("id", Uuid, primary_key=True, server_default=text("gen_random_uuid()")),
        Column("seq", BigInteger, Identity(always=True), nullable=False),
        Column("job_id", Uuid, nullable=False, unique=True),
        *needed(target=Text, name=Text, document=Text, taken_at=INSTANT),
        *optional(key_hash=Uuid),
        Index("moving_target", "target", "seq"),
    )
