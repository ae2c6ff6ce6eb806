"""Jobs on their way to another database: whole, in one row each, and in no other table until they have arrived.

And the kind of dead letters that a bulk operation is over, and the sessions that were ended.

Only `outlast jobs move` touches this table. A job in it is nobody's to claim, to change or to count here.
"""

from __future__ import annotations

import re

from alembic import context, op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

STATEMENTS = (
    """create table outlast.moving(
      id uuid primary key default gen_random_uuid(),
      seq bigint not null generated always as identity, job_id uuid not null unique, target text not null,
      name text not null, key_hash uuid, document text not null,
      taken_at timestamptz not null default outlast.clock()
        check (taken_at >= '1970-01-01 00:00:00+00' and taken_at < '10000-01-01 00:00:00+00'))""",
    "create index moving_target on outlast.moving(target, seq)",
    # Sessions of the dashboard that were ended before their time.
    """create table outlast.ended_session(
      id uuid primary key, until_at timestamptz not null
        check (until_at >= '1970-01-01 00:00:00+00' and until_at < '10000-01-01 00:00:00+00'))""",
    # The kind of dead letters that an operation is over.
    "alter table outlast.bulk add column dead_reason text, add column error_type text, add column error_code text",
)

# Payloads of every tenant are in it, and no read for callers of one tenant needs it.
OFF_THE_WALL = """do $make$ begin
  revoke all on {schema}.moving, {schema}.ended_session from "{role}";
exception when undefined_object then null;
end $make$"""

# The release before cannot bring them on their way, nor back.
NONE_LEFT = """do $make$ begin
  if exists (select from {schema}.moving) then
    raise exception 'jobs are on their way to another database: run outlast jobs move to its end first';
  end if;
end $make$"""


def in_schema(sql: str) -> str:
    schema: str = context.config.attributes["schema"]
    return re.sub(r"\boutlast\.", f'"{schema}".', sql)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(in_schema(statement))
    schema: str = context.config.attributes["schema"]
    op.execute(OFF_THE_WALL.format(schema=f'"{schema}"', role=f"{schema}_api"))


def downgrade() -> None:
    schema: str = context.config.attributes["schema"]
    op.execute(NONE_LEFT.format(schema=f'"{schema}"'))
    op.execute(in_schema("drop table outlast.moving"))
    op.execute(in_schema("drop table outlast.ended_session"))
    op.execute(in_schema("alter table outlast.bulk drop dead_reason, drop error_type, drop error_code"))
