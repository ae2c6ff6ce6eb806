"""Webhooks, what jobs ask to be told to them, and deliveries: one is written by the statement that ends its job.

A job without a callback has one null more, which takes no room, and nothing here is read or written for it. No secret
is kept: a webhook's row has the number of its secret and the name of the master key that it is derived from.
"""

from __future__ import annotations

import re

from alembic import context, op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def instant(column: str, options: str = "not null") -> str:
    """Give a timestamp column that every client can read back: finite, years 1970 to 9999."""
    low, high = "1970-01-01 00:00:00+00", "10000-01-01 00:00:00+00"
    return f"{column} timestamptz {options} check ({column} >= '{low}' and {column} < '{high}')"


STATEMENTS = (
    "alter table outlast.job add column callback text",
    "alter table outlast.outbox add column callback text",
    f"""create table outlast.webhook(
      id text primary key check (id ~ '^wh_[0-9a-f]{{16}}$'), tenant text not null, label text not null,
      url text not null, secret_no int not null default 1 check (secret_no > 0), master text not null,
      previous_no int, previous_master text, {instant("previous_until", "")},
      {instant("created_at", "not null default outlast.clock()")}, created_by text not null,
      {instant("rotated_at", "")}, {instant("disabled_at", "")}, disabled_why text, version int not null default 1,
      check ((previous_no is null) = (previous_master is null) and (previous_no is null) = (previous_until is null)),
      check ((disabled_at is null) = (disabled_why is null))
    )""",
    "create index webhook_tenant on outlast.webhook(tenant)",
    # `state`: 0 pending, 1 delivered, 2 failed. `carrier` is the job that carries it, made after the end is committed.
    # `ended_as` is a code of `finished.state`. The newest tries are in `tries`, all are counted in `tried`.
    f"""create table outlast.delivery(
      id uuid primary key default gen_random_uuid(), tenant text not null, webhook text not null, url text,
      subject uuid not null, run_id uuid not null, name text not null, queue text not null, ended_as smallint not null,
      reason text, attempt smallint not null, traceparent text,
      {instant("ended_at", "not null default outlast.clock()")}, state smallint not null default 0,
      carrier uuid, tried int not null default 0, tries text not null default '[]',
      check (state between 0 and 2), check (ended_as in (0, 2, 4))
    ) with (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=2000, autovacuum_analyze_scale_factor=0.05,
      autovacuum_vacuum_insert_scale_factor=0.05, vacuum_truncate=off)""",
    "create index delivery_uncarried on outlast.delivery(ended_at) where carrier is null and state = 0",
    "create index delivery_webhook on outlast.delivery(webhook, ended_at, id)",
    "create index delivery_ended on outlast.delivery(ended_at)",
    "insert into outlast.purge_mark(kind) values ('deliveries')",
)
WALLED = ("webhook", "delivery")


def in_schema(sql: str) -> str:
    schema: str = context.config.attributes["schema"]
    return re.sub(r"\boutlast\.", f'"{schema}".', sql)


def wall(table: str) -> list[str]:
    schema: str = context.config.attributes["schema"]
    of = "current_setting('outlast.tenant', true)"
    passes = f"current_user <> '{schema}_api'"
    return [
        f"create policy everybody on outlast.{table} using (true) with check (true)",
        f"create policy own_tenant on outlast.{table} as restrictive for select using ({passes} or tenant = {of})",
        f"alter table outlast.{table} enable row level security",
    ]


def upgrade() -> None:
    for statement in (*STATEMENTS, *(part for table in WALLED for part in wall(table))):
        # The tenant of the session is a setting, whatever the schema is called.
        op.execute(in_schema(statement.replace("'outlast.tenant'", "'outlast' || '.tenant'")))


def downgrade() -> None:
    for statement in (
        *("drop table outlast.delivery", "drop table outlast.webhook"),
        "delete from outlast.purge_mark where kind = 'deliveries'",
        *("alter table outlast.outbox drop column callback", "alter table outlast.job drop column callback"),
    ):
        op.execute(in_schema(statement))
