"""The table of the audit as SQLAlchemy metadata. A part of `tables`, apart because jobs do not touch it."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Identity, Index, MetaData, Table, Text, Uuid

from .table_columns import INSTANT, needed, optional


def add_audit(meta: MetaData) -> None:
    """Add the table of the audit."""
    Table(
        "audit",
        meta,
        Column("seq", BigInteger, Identity(always=True), primary_key=True),
        Column("id", Uuid, nullable=False, unique=True),
        *needed(at=INSTANT, actor=Text),
        *optional(tenant=Text),
        *needed(action=Text, target_kind=Text),
        *optional(target=Text, reason=Text),
        *needed(outcome=Text, details=Text),
        Index("audit_target", "target", "seq"),
        Index("audit_actor", "actor", "seq"),
    )
