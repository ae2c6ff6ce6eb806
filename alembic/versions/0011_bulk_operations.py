"""Bulk operations, and a row for each job of one: fixed when the operation is made, with its verdict afterwards."""

from __future__ import annotations

import re

from alembic import context, op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def instant(column: str, options: str = "not null") -> str:
    """Give a timestamp column that every client can read back: finite, years 1970 to 9999."""
    low, high = "1970-01-01 00:00:00+00", "10000-01-01 00:00:00+00"
    return f"{column} timestamptz {options} check ({column} >= '{low}' and {column} < '{high}')"


NOW = "not null default outlast.clock()"

STATEMENTS = (
    # Its lock is what a batch takes before anything else. Where the next batch begins: after (at_round, at_job).
    f"""create table outlast.bulk(
      id uuid primary key, action text not null, state smallint not null default 0 check (state between 0 and 2),
      tenant text, made_by text not null, reason text, by_ids boolean not null, states text[], name text, queue text,
      {instant("created_after", "")}, {instant("created_before", "")}, {instant("created_at", NOW)},
      {instant("ended_at", "")}, ended_by text, priority smallint, {instant("run_at", "")},
      selected int not null default 0, done int not null default 0, changed int not null default 0,
      failed int not null default 0, at_round int not null default 0,
      at_job uuid not null default '00000000-0000-0000-0000-000000000000')""",
    "create index bulk_running on outlast.bulk(id) where state = 0",
    "create index bulk_ended on outlast.bulk(ended_at) where ended_at is not null",
    # A job that could not be decided because somebody held it goes on to the next round.
    f"""create table outlast.bulk_item(
      bulk_id uuid not null, job_id uuid not null, round int not null default 0,
      verdict smallint check (verdict between 0 and 2), code text, detail text, {instant("decided_at", "")},
      primary key (bulk_id, job_id))""",
    "create index bulk_item_left on outlast.bulk_item(bulk_id, round, job_id) where verdict is null",
    "create index bulk_item_undone on outlast.bulk_item(bulk_id, verdict, job_id) where verdict > 0",
)


def in_schema(sql: str) -> str:
    schema: str = context.config.attributes["schema"]
    return re.sub(r"\boutlast\.", f'"{schema}".', sql)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(in_schema(statement))


def downgrade() -> None:
    for table in ("bulk_item", "bulk"):
        op.execute(in_schema(f"drop table outlast.{table}"))
