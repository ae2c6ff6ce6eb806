"""Schedules: what schedulers declare, up to which instant each schedule is decided, and one row per occurrence.

A schedule that was never declared has no row anywhere, and nothing here is touched by an enqueue.
"""

from __future__ import annotations

import re

from alembic import context, op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def instant(column: str, options: str = "not null") -> str:
    """Give a timestamp column that every client can read back: finite, years 1970 to 9999."""
    low, high = "1970-01-01 00:00:00+00", "10000-01-01 00:00:00+00"
    return f"{column} timestamptz {options} check ({column} >= '{low}' and {column} < '{high}')"


NOW = "not null default outlast.clock()"
DECLARED = "code_version text not null, cron text not null, tz text not null, document text not null"

STATEMENTS = (
    # The order in which declarations came, also of two in one instant.
    "create sequence outlast.declaration_seq cache 1",
    # Every declaration that some scheduler shows, until none has for long.
    f"""create table outlast.declaration(
      schedule text not null, digest text not null, {DECLARED},
      number bigint not null default nextval('outlast.declaration_seq'), {instant("published_at", NOW)},
      {instant("seen_at", NOW)}, primary key (schedule, digest))""",
    # The one of them that stands. The row's lock is what deciding takes.
    f"""create table outlast.schedule(
      name text primary key, digest text not null, {DECLARED}, {instant("published_at")}, {instant("seen_at")},
      {instant("watermark")}, {instant("paused_at", "")}, paused_by text, pause_reason text)""",
    f"""create table outlast.occurrence(
      schedule text not null, {instant('"at"')}, outcome smallint not null check (outcome between 0 and 1), why text,
      job_id uuid, {instant("decided_at", NOW)}, fired_by text, primary key (schedule, "at"))""",
    "create index occurrence_decided on outlast.occurrence(decided_at)",
)


def in_schema(sql: str) -> str:
    schema: str = context.config.attributes["schema"]
    return re.sub(r"\boutlast\.", f'"{schema}".', sql)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(in_schema(statement))


def downgrade() -> None:
    for table in ("occurrence", "schedule", "declaration"):
        op.execute(in_schema(f"drop table outlast.{table}"))
    op.execute(in_schema("drop sequence outlast.declaration_seq"))
