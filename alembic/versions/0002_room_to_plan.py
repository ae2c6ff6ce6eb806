"""Room in the token tables, so that plans made while they are empty stay good.

A statement prepared on a table of few pages is planned as one scan from end to end, and keeps that plan for the life
of its connection, however large the table grows meanwhile. Our connections start with `enable_seqscan = off`; this
holds where a pooler drops such settings, too. `vacuum_truncate = off` keeps the pages. Nobody ever sees the rows.
"""

from __future__ import annotations

import re

from alembic import context, op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# A table that has grown by itself needs none of it. Twelve thousand narrow rows are more than a hundred pages.
PAGES, ROWS = 100, 12_000
GROW = {
    "ready": "(queue, rank, seq, job_id, name_id, moved) select '', -1, -i, gen_random_uuid(), 0, false",
    "waiting": "(job_id, due_at, queue, rank, name_id) select gen_random_uuid(), timestamptz '9999-01-01', '', -1, 0",
    "running": "(job_id, seq, worker, queue, rank, name_id) select gen_random_uuid(), 0, 0, '', -1, 0",
}
MADE_UP = "queue = '' and rank = -1"


def in_schema(sql: str) -> str:
    schema: str = context.config.attributes["schema"]
    return re.sub(r"\boutlast\.", f'"{schema}".', sql)


def upgrade() -> None:
    """Insert and delete; the vacuum that clears the rows away comes after the commit, in `migrations`."""
    for table, row in GROW.items():
        pages = f"pg_relation_size('outlast.{table}') / current_setting('block_size')::int"
        op.execute(
            in_schema(
                f"insert into outlast.{table}{row} from generate_series(1, {ROWS}) i where (select {pages} < {PAGES})"
            )
        )
        op.execute(in_schema(f"delete from outlast.{table} where {MADE_UP}"))  # noqa: S608  same


def downgrade() -> None:
    """Pages stay: whatever ran on the schema before runs on larger tables as well."""
