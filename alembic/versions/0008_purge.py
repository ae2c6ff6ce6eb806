"""Where each round over rows that may be over stands: a row a kind. Workers make those of kinds that come later.

Deleting itself needs no column: what is over is seen by the rows as they are.
"""

from __future__ import annotations

import re

from alembic import context, op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def instant(column: str, options: str = "not null") -> str:
    """Give a timestamp column that every client can read back: finite, years 1970 to 9999."""
    low, high = "1970-01-01 00:00:00+00", "10000-01-01 00:00:00+00"
    return f"{column} timestamptz {options} check ({column} >= '{low}' and {column} < '{high}')"


NOW = "not null default outlast.clock()"

# Few rows that are updated often: with room on their page no index is touched.
MARKS = f"""
create table outlast.purge_mark(
  kind text primary key, after text, low int, lowest int, {instant("made_at", NOW)}, {instant("began_at", "")},
  {instant("round_at", "")}, {instant("rests_until", NOW)}) with (fillfactor=50)"""


# Made here, so that nobody waits for the first to look.
KINDS = "insert into outlast.purge_mark(kind) select unnest(array[{kinds}])"
FIRST = ("jobs", "keys", "sources", "events", "events: jobs done", "drains", "workers")


def in_schema(sql: str) -> str:
    schema: str = context.config.attributes["schema"]
    return re.sub(r"\boutlast\.", f'"{schema}".', sql)


def upgrade() -> None:
    op.execute(in_schema(MARKS))
    op.execute(in_schema(KINDS.replace("{kinds}", ", ".join(f"'{kind}'" for kind in FIRST))))


def downgrade() -> None:
    op.execute(in_schema("drop table outlast.purge_mark"))
