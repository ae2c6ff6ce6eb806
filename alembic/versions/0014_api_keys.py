"""API keys: who may do what for which tenant; and row security, by which each tenant's rows are its own.

Of a secret only its SHA-256 and its last four characters are kept. Nothing on the way of a job touches that table. The
policies bind the role that reads for callers of one tenant and nobody else: who owns the tables passes them by. Where
this account may not make roles there is none, until somebody makes it as the documentation says.
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


# Null: what belongs to nobody alone is everybody's to see.
WALLED = {"job": False, "event": False, "audit": True, "bulk": False, "outbox": False}
# Held by one migration after the other; another that makes the same role in another database is no failure.
ROLE = """do $make$ begin
  if not exists (select from pg_roles where rolname = '{role}') then create role "{role}" nologin; end if;
exception when insufficient_privilege or duplicate_object or unique_violation then
  raise notice using message = 'the role {role} is not made here: ' || sqlerrm;
end $make$"""
GRANTS = """do $make$ declare taking text; name text; begin
  -- What is granted is noted in each table's row of the catalogue, without a lock on the table: an analyze of one would
  -- wait for that row, and the next statement on the table for the analyze.
  for name in select c.oid::regclass::text from pg_class c where c.relnamespace = to_regnamespace('{schema}')
    and c.relkind = 'r' order by c.oid loop
    execute 'lock table ' || name || ' in share update exclusive mode';
  end loop;
  grant usage on schema {schema} to "{role}";
  grant select on all tables in schema {schema} to "{role}";
  revoke all on {schema}.api_key from "{role}";
  alter default privileges in schema {schema} grant select on tables to "{role}";
  -- From 16 on, who makes a role may give it away and not take it.
  taking := case when current_setting('server_version_num')::int < 160000 then 'member' else 'set' end;
  if not pg_has_role(current_user, '{role}', taking) then grant "{role}" to current_user; end if;
exception when insufficient_privilege or undefined_object then
  raise notice using message = 'the role {role} may not be used here: ' || sqlerrm;
end $make$"""
REVOKES = """do $make$ declare name text; begin
  -- What is revoked is noted in each table's row of the catalogue, without a lock on the table: an analyze of one would
  -- wait for that row, and the next statement on the table for the analyze.
  for name in select c.oid::regclass::text from pg_class c where c.relnamespace = to_regnamespace('{schema}')
    and c.relkind = 'r' order by c.oid loop
    execute 'lock table ' || name || ' in share update exclusive mode';
  end loop;
  alter default privileges in schema {schema} revoke select on tables from "{role}";
  revoke all on all tables in schema {schema} from "{role}";
  revoke all on schema {schema} from "{role}";
exception when undefined_object then null;
end $make$"""


def names() -> dict[str, str]:
    schema: str = context.config.attributes["schema"]
    return {"schema": f'"{schema}"', "role": f"{schema}_api"}


def wall(table: str, *, with_nobodys: bool) -> list[str]:
    own = "tenant = current_setting('outlast.tenant', true)"
    seen = f"(tenant is null or {own})" if with_nobodys else own
    name, passes = f"{names()['schema']}.{table}", f"current_user <> '{names()['role']}'"
    return [
        f"create policy everybody on {name} using (true) with check (true)",
        f"create policy own_tenant on {name} as restrictive for select using ({passes} or {seen})",
        f"alter table {name} enable row level security",
    ]


def in_schema(sql: str) -> str:
    schema: str = context.config.attributes["schema"]
    return re.sub(r"\boutlast\.", f'"{schema}".', sql)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(in_schema(statement))
    for table, with_nobodys in WALLED.items():
        for statement in wall(table, with_nobodys=with_nobodys):
            op.execute(statement)
    op.execute(ROLE.format(**names()))
    op.execute(GRANTS.format(**names()))


def downgrade() -> None:
    op.execute(REVOKES.format(**names()))
    for table in WALLED:
        name = f"{names()['schema']}.{table}"
        op.execute(f"alter table {name} disable row level security")
        for policy in ("everybody", "own_tenant"):
            op.execute(f"drop policy {policy} on {name}")
    op.execute(in_schema("drop table outlast.api_key"))
