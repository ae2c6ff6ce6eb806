"""The tables of webhooks and deliveries as SQLAlchemy metadata. A part of `tables`."""

from __future__ import annotations

from sqlalchemy import Column, Index, Integer, MetaData, SmallInteger, Table, Text, Uuid, text

from .table_columns import INSTANT, needed, optional


def add_webhooks(meta: MetaData) -> None:
    """Add webhooks, and what is told to them."""
    Table(
        "webhook",
        meta,
        Column("id", Text, primary_key=True),
        *needed(tenant=Text, label=Text, url=Text, secret_no=Integer, master=Text, created_at=INSTANT, created_by=Text),
        *optional(previous_no=Integer, previous_master=Text, previous_until=INSTANT, rotated_at=INSTANT),
        *optional(disabled_at=INSTANT, disabled_why=Text),
        *needed(version=Integer),
        Index("webhook_tenant", "tenant"),
    )
    Table(
        "delivery",
        meta,
        Column("id", Uuid, primary_key=True),
        *needed(tenant=Text, webhook=Text, subject=Uuid, run_id=Uuid, name=Text, queue=Text, ended_as=SmallInteger),
        *optional(url=Text, reason=Text, traceparent=Text, carrier=Uuid),
        *needed(attempt=SmallInteger, ended_at=INSTANT, state=SmallInteger, tried=Integer, tries=Text),
        Index("delivery_uncarried", "ended_at", postgresql_where=text("carrier is null and state = 0")),
        Index("delivery_webhook", "webhook", "ended_at", "id"),
        Index("delivery_ended", "ended_at"),
    )
