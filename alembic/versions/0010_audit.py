"""The audit: one row per action of an operator, written in the commit of the action.

Rows are only ever added, and deleted when they are old. Nothing on the way of a job touches this table.
"""

from __future__ import annotations

import re

from alembic import context, op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def instant(column: str, options: str = "not null") -> str:
    """Give a timestamp column that every client can read back: finite, years 1970 to 9999."""
    low, high = "1970-01-01 00:00:00+00", "10000-01-01 00:00:00+00"
    return f"{column} timestamptz {options} check ({column} >= '{low}' and {column} < '{high}')"


STATEMENTS = (
    # The id is the caller's: an action that is repeated because its reply was lost leaves one row.
    f"""create table outlast.audit(
      seq bigint generated always as identity primary key, id uuid not null unique,
      {instant('"at"', "not null default outlast.clock()")}, actor text not null, tenant text, action text not null,
      target_kind text not null, target text, reason text, outcome text not null, details text not null)""",
    "create index audit_target on outlast.audit(target, seq)",
    "create index audit_actor on outlast.audit(actor, seq)",
    'create index audit_at on outlast.audit("at")',
    "insert into outlast.purge_mark(kind) values ('audit')",
)


def in_schema(sql: str) -> str:
    schema: str = context.config.attributes["schema"]
    return re.sub(r"\boutlast\.", f'"{schema}".', sql)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(in_schema(statement))


def downgrade() -> None:
    op.execute(in_schema("delete from outlast.purge_mark where kind = 'audit'"))
    op.execute(in_schema("drop table outlast.audit"))
