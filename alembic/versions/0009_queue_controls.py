"""Queue controls: the end of a pause, how many jobs of a queue may run, and how many may wait in it.

A queue without a setting has no row, as before. `free` and `free_until` are what an enqueue of a queue with a maximum
depth leaves behind when counting it was dear.
"""

from __future__ import annotations

import re

from alembic import context, op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def instant(column: str, options: str = "") -> str:
    """Give a timestamp column that every client can read back: finite, years 1970 to 9999."""
    low, high = "1970-01-01 00:00:00+00", "10000-01-01 00:00:00+00"
    return f"{column} timestamptz {options} check ({column} >= '{low}' and {column} < '{high}')"


STATEMENTS = (
    f"""alter table outlast.queue add column {instant("paused_until")},
      add column concurrency int check (concurrency > 0), add column max_depth int check (max_depth >= 0),
      add column free int, add column {instant("free_until")}""",
    # Every enqueue looks here; without a maximum anywhere there is one page to look at.
    "create index queue_max_depth on outlast.queue(name) where max_depth is not null",
)


def in_schema(sql: str) -> str:
    schema: str = context.config.attributes["schema"]
    return re.sub(r"\boutlast\.", f'"{schema}".', sql)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(in_schema(statement))


def downgrade() -> None:
    op.execute(in_schema("drop index outlast.queue_max_depth"))
    op.execute(
        in_schema(
            "alter table outlast.queue drop column paused_until, drop column concurrency, drop column max_depth,"
            " drop column free, drop column free_until"
        )
    )
    op.execute(in_schema("delete from outlast.queue where paused_at is null"))
