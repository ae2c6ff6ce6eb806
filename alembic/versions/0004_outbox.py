"""The outbox: jobs staged in transactions of their callers, until a relay has published them.

It may be migrated into a database that holds no jobs: the one its callers write to. A row leaves when it is published;
what it became is remembered in `source`, beside the jobs.
"""

from __future__ import annotations

import re

from alembic import context, op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def instant(column: str, options: str = "not null") -> str:
    """Give a timestamp column that every client can read back: finite, years 1970 to 9999."""
    low, high = "1970-01-01 00:00:00+00", "10000-01-01 00:00:00+00"
    return f"{column} timestamptz {options} check ({column} >= '{low}' and {column} < '{high}')"


def span(column: str) -> str:
    """Give an interval column that every client can read back."""
    return f"{column} interval check ({column} between interval '0' and interval '10000 years')"


# A timeout in milliseconds; tags as one list of strings.
TIMEOUT = "timeout_ms bigint check (timeout_ms between 1 and 315360000000000)"
TAGS = "tags text[] check (coalesce(array_ndims(tags), 1) = 1 and array_position(tags, null) is null)"

STATEMENTS = (
    # `state`: 0 staged, 1 claimed, 2 quarantined. Each has an index of its own, so that looking for rows in one state
    # costs nothing for those in another. `claims` is never taken back: a row that was claimed may have been published.
    f"""create table outlast.outbox(
      id uuid primary key, {instant("staged_at", "not null default outlast.clock()")},
      state smallint not null default 0 check (state between 0 and 2), claims int not null default 0,
      claimed_by uuid, {instant("lease_until", "")},
      name text not null, queue text not null, priority smallint not null check (priority between 0 and 9),
      tenant text not null, payload text not null, max_attempts smallint not null, max_crashes smallint not null,
      key text check (length(key) between 1 and 255), fp bigint not null default 0, {span("dedupe_for")},
      {instant("run_at", "")}, {span("max_queue_time")}, {span("deadline")}, {TIMEOUT}, parent_id uuid,
      enqueued_by text, traceparent text, {TAGS}, meta text,
      {instant("refused_at", "")}, refused_code text, refused_why text,
      check ((state = 1) = (claimed_by is not null and lease_until is not null)),
      check ((state = 2) = (refused_at is not null and refused_why is not null))
    ) with (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=2000, autovacuum_analyze_scale_factor=0.05,
      autovacuum_vacuum_insert_scale_factor=0.05, vacuum_truncate=off)""",
    "create index outbox_staged on outlast.outbox(staged_at) where state = 0",
    "create index outbox_claimed on outlast.outbox(lease_until) where state = 1",
    "create index outbox_quarantined on outlast.outbox(refused_at) where state = 2",
)


def in_schema(sql: str) -> str:
    schema: str = context.config.attributes["schema"]
    return re.sub(r"\boutlast\.", f'"{schema}".', sql)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(in_schema(statement))


def downgrade() -> None:
    op.execute(in_schema("drop table outlast.outbox"))
