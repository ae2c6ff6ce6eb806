"""API keys: who may do what for which tenant.

Of a secret only its SHA-256 and its last four characters are kept. Nothing on the way of a job touches this table.
"""

from __future__ import annotations

import re

from alembic import context, op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def instant(column: str, options: str = "not null") -> str:
    """Give a timestamp column that every client can read back: finite, years 1970 to 9999."""
    low, high = "1970-01-01 00:00:00+00", "10000-01-01 00:00:00+00"
    return f"{column} timestamptz {options} check ({column} >= '{low}' and {column} < '{high}')"


STATEMENTS = (
    f"""create table outlast.api_key(
      id text primary key check (id ~ '^[0-9a-f]{{16}}$'), label text not null, tenant text, scopes text[] not null,
      queues text[], digest bytea not null check (length(digest) = 32), last4 text not null,
      previous_digest bytea check (length(previous_digest) = 32), previous_last4 text,
      {instant("previous_until", "")}, {instant("created_at", "not null default outlast.clock()")},
      created_by text not null, {instant("rotated_at", "")}, {instant("expires_at", "")}, {instant("revoked_at", "")},
      revoked_by text, {instant("last_used_at", "")},
      check (cardinality(scopes) > 0), check (queues is null or cardinality(queues) > 0),
      check ((revoked_at is null) = (revoked_by is null)),
      check ((previous_digest is null) = (previous_until is null)))""",
)


def in_schema(sql: str) -> str:
    schema: str = context.config.attributes["schema"]
    return re.sub(r"\boutlast\.", f'"{schema}".', sql)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(in_schema(statement))


def downgrade() -> None:
    op.execute(in_schema("drop table outlast.api_key"))
