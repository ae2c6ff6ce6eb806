"""What each code version declared of its limits, so that the newest one's numbers stay; and the wall around limits.

Callers of one tenant read slots, the gate and its keys as they read jobs: their own. What they need of a key that
others use as well is how it stands, which a function gives to whoever can name it. Two things that no read for them
needs are taken off the wall: the queues' load, and kept answers, also where they were not when their table was made.
"""

from __future__ import annotations

import re

from alembic import context, op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def instant(column: str, options: str = "not null") -> str:
    """Give a timestamp column that every client can read back: finite, years 1970 to 9999."""
    low, high = "1970-01-01 00:00:00+00", "10000-01-01 00:00:00+00"
    return f"{column} timestamptz {options} check ({column} >= '{low}' and {column} < '{high}')"


STATEMENTS = (
    # The order in which versions came, also of two in one instant.
    "create sequence outlast.limit_version_seq cache 1",
    # The limits of a job type as a code version declares them, by name. Of each type one version's are in force.
    f"""create table outlast.limit_version(
      name text not null, code_version text not null,
      number bigint not null default nextval('outlast.limit_version_seq'), limits text[] not null, ns int[] not null,
      pers interval[] not null, stands bool not null default false,
      {instant("shown_at", "not null default outlast.clock()")}, primary key (name, code_version))""",
    # What is in force by now is of who published last.
    """insert into outlast.limit_version(name, code_version, limits, ns, pers, stands)
      select t.name, t.code_version, array_agg(r."limit" order by r."limit" collate "C"),
        array_agg(r.declared order by r."limit" collate "C"), array_agg(r.per order by r."limit" collate "C"), true
      from outlast.job_type t join outlast.limit_rule r on r.name = t.name
      where r.declared is not null group by t.name, t.code_version order by t.name""",
    # Whoever knows the hash knows the key, or has a job under it.
    """create function outlast.limit_standing(which uuid)
      returns table(tokens float8, filled_at timestamptz, held bigint)
      language sql stable security definer set search_path = pg_catalog, pg_temp as $$
      select k.tokens, k.filled_at, (select count(*) from outlast.slot s where s.hash = which)
      from (select 1) one left join outlast.limit_key k on k.hash = which $$""",
)

OWN_JOB = """exists (
  select from {schema}.job j where j.id = {table}.job_id and j.tenant = current_setting('outlast.tenant', true))"""
# Only own slots and own jobs in the gate are seen from behind the wall.
OWN_KEY = """(exists (select from {schema}.slot s where s.hash = limit_key.hash)
  or exists (select from {schema}.gate g where g.parked = limit_key.hash))"""
WALLED = {"slot": OWN_JOB, "gate": OWN_JOB, "limit_key": OWN_KEY}

OFF_THE_WALL = """do $make$ begin
  -- An analyze of the table would wait for its row of the catalogue, and this for the analyze.
  lock table {schema}.request in share update exclusive mode;
  revoke all on {schema}.request, {schema}.queue_load from "{role}";
exception when undefined_object then null;
end $make$"""
ONTO_THE_WALL = """do $make$ begin
  grant select on {schema}.queue_load to "{role}";
exception when undefined_object then null;
end $make$"""


def names() -> dict[str, str]:
    schema: str = context.config.attributes["schema"]
    return {"schema": f'"{schema}"', "role": f"{schema}_api"}


def in_schema(sql: str) -> str:
    schema: str = context.config.attributes["schema"]
    return re.sub(r"\boutlast\.", f'"{schema}".', sql)


def wall(table: str, own: str) -> list[str]:
    name, passes = f"{names()['schema']}.{table}", f"current_user <> '{names()['role']}'"
    return [
        f"create policy everybody on {name} using (true) with check (true)",
        f"create policy own_tenant on {name} as restrictive for select using ({passes} or {own})",
        f"alter table {name} enable row level security",
    ]


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(in_schema(statement))
    for table, own in WALLED.items():
        for statement in wall(table, own.format(table=table, **names())):
            op.execute(statement)
    op.execute(OFF_THE_WALL.format(**names()))


def downgrade() -> None:
    op.execute(ONTO_THE_WALL.format(**names()))
    for table in WALLED:
        name = f"{names()['schema']}.{table}"
        op.execute(f"alter table {name} disable row level security")
        for policy in ("everybody", "own_tenant"):
            op.execute(f"drop policy {policy} on {name}")
    op.execute(in_schema("drop function outlast.limit_standing(uuid)"))
    op.execute(in_schema("drop table outlast.limit_version"))
    op.execute(in_schema("drop sequence outlast.limit_version_seq"))
