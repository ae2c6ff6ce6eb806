"""Requests with a key of their own: claimed, their effect marked in its own commit, their answer kept for a day.

Only HTTP requests that carry an `Idempotency-Key` touch this table.
"""

from __future__ import annotations

import re

from alembic import context, op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def instant(column: str, options: str = "not null") -> str:
    """Give a timestamp column that every client can read back: finite, years 1970 to 9999."""
    low, high = "1970-01-01 00:00:00+00", "10000-01-01 00:00:00+00"
    return f"{column} timestamptz {options} check ({column} >= '{low}' and {column} < '{high}')"


STATEMENTS = (
    # A row is written twice or three times within moments: room on its page keeps the updates off the indexes.
    f"""create table outlast.request(
      id uuid primary key, holder uuid not null, fingerprint uuid not null,
      {instant("created_at")}, {instant("until_at")},
      effect text, status smallint, headers text, body text) with (fillfactor = 70)""",
    "create index request_created on outlast.request(created_at)",
    "insert into outlast.purge_mark(kind) values ('requests')",
)


def in_schema(sql: str) -> str:
    schema: str = context.config.attributes["schema"]
    return re.sub(r"\boutlast\.", f'"{schema}".', sql)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(in_schema(statement))


def downgrade() -> None:
    op.execute(in_schema("delete from outlast.purge_mark where kind = 'requests'"))
    op.execute(in_schema("drop table outlast.request"))
