"""The table of requests with a key of their own as SQLAlchemy metadata. Apart from `tables`: no job needs it."""

from __future__ import annotations

from sqlalchemy import Column, Index, MetaData, SmallInteger, Table, Text, Uuid

from .table_columns import INSTANT, needed, optional


def add_requests(meta: MetaData) -> None:
    """Add the table of requests."""
    Table(
        "request",
        meta,
        Column("id", Uuid, primary_key=True),
        *needed(holder=Uuid, fingerprint=Uuid, created_at=INSTANT, until_at=INSTANT),
        *optional(effect=Text, status=SmallInteger, headers=Text, body=Text),
        Index("request_created", "created_at"),
    )
