"""What a worker shows of its drain, who asked for it, and the report it leaves.

The columns have no defaults: adding them rewrites nothing, and the release before goes on as it was. A report is one
row a drained worker, written by itself at its end; its runs stand in parallel arrays.
"""

from __future__ import annotations

import re

from alembic import context, op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def instant(column: str) -> str:
    """Give a timestamp column that every client can read back: finite, years 1970 to 9999."""
    low, high = "1970-01-01 00:00:00+00", "10000-01-01 00:00:00+00"
    return f"{column} timestamptz check ({column} >= '{low}' and {column} < '{high}')"


COLUMNS = (
    instant("drain_asked_at"),
    "drain_asked_by text",
    "drain_reason text",
    instant("drain_deadline_at"),
)


REPORTS = f"""
create table outlast.drain(
  worker int primary key, host text not null, code_version text not null, reason text not null,
  {instant("started_at")} not null, {instant("ended_at")} not null default outlast.clock(),
  job_ids uuid[] not null, claim_nos int[] not null, names text[] not null, fates text[] not null,
  ignored boolean[] not null)"""


def in_schema(sql: str) -> str:
    schema: str = context.config.attributes["schema"]
    return re.sub(r"\boutlast\.", f'"{schema}".', sql)


def upgrade() -> None:
    op.execute(in_schema("alter table outlast.worker " + ", ".join(f"add column {column}" for column in COLUMNS)))
    op.execute(in_schema(REPORTS))


def downgrade() -> None:
    op.execute(in_schema("drop table outlast.drain"))
    names = (column.split()[0] for column in COLUMNS)
    op.execute(in_schema("alter table outlast.worker " + ", ".join(f"drop column {name}" for name in names)))
