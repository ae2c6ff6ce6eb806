"""The tables of API keys and of the sessions begun with them, as SQLAlchemy metadata. No job touches one."""

from __future__ import annotations

from sqlalchemy import ARRAY, Column, LargeBinary, MetaData, Table, Text, Uuid

from .table_columns import INSTANT, needed, optional


def add_keys(meta: MetaData) -> None:
    """Add the table of API keys."""
    Table(
        "api_key",
        meta,
        Column("id", Text, primary_key=True),
        *needed(label=Text, scopes=ARRAY(Text), digest=LargeBinary, last4=Text, created_at=INSTANT, created_by=Text),
        *optional(tenant=Text, queues=ARRAY(Text), previous_digest=LargeBinary, previous_last4=Text),
        *optional(previous_until=INSTANT, rotated_at=INSTANT, expires_at=INSTANT, revoked_at=INSTANT),
        *optional(revoked_by=Text, last_used_at=INSTANT),
    )
    Table("ended_session", meta, Column("id", Uuid, primary_key=True), *needed(until_at=INSTANT))
