"""Whether the wall between tenants stands as the migrations made it: the role, what it may, and each table's policies.

Reads the catalogs only, and enters nothing. Gives what is missing as the statements that bring it back, for an
administrator to run. Judges nothing. Called by `vitals_server`.
"""

from __future__ import annotations

from ...domain.audit import SHARED
from ...domain.vitals import WallVitals
from .database import Database, Raw
from .tenant_wall import role_of

# The tables whose rows are a tenant's own, and which rows those are; `{schema}` is the quoted schema.
_OWN = "tenant = current_setting('outlast.tenant', true)"
_KINDS = ", ".join(f"'{kind}'" for kind in SHARED)
_OR_NOBODYS = f"{_OWN} or tenant is null and target_kind in ({_KINDS})"
_OF_OWN_JOB = f"exists (select from {{schema}}.job j where j.id = {{table}}.job_id and j.{_OWN})"
_OF_OWN_KEY = (
    "exists (select from {schema}.slot s where s.hash = limit_key.hash)"
    " or exists (select from {schema}.gate g where g.parked = limit_key.hash)"
)
WALLED = {
    "job": _OWN,
    "event": _OWN,
    "audit": _OR_NOBODYS,
    "bulk": _OWN,
    "outbox": _OWN,
    "slot": _OF_OWN_JOB,
    "gate": _OF_OWN_JOB,
    "limit_key": _OF_OWN_KEY,
    "webhook": _OWN,
    "delivery": _OWN,
}
# What no read for a caller of one tenant needs.
UNREAD = ("api_key", "ended_session", "moving", "queue_load", "request")

# To take a role is to be a member of it; from PostgreSQL 16 on, a member who may set it.
_ROLE = """
select case when current_setting('server_version_num')::int < 160000 then pg_has_role(current_user, r.oid, 'member')
  else pg_has_role(current_user, r.oid, 'set') end as may_be_taken,
  has_schema_privilege(r.oid, to_regnamespace(quote_ident($2))::oid, 'usage') as sees_schema
from pg_roles r where r.rolname = $1"""
_READS = """
select c.relname::text as name, has_table_privilege($1, c.oid, 'select') as reads,
  has_table_privilege($1, c.oid, 'insert, update, delete, truncate') as writes
from pg_class c where c.relnamespace = to_regnamespace(quote_ident($2)) and c.relkind in ('r', 'v')
order by c.relname"""
_POLICIES = """
select c.relname::text as name, c.relrowsecurity as is_on,
  exists (
    select from pg_policy p where p.polrelid = c.oid and p.polname = 'everybody' and p.polpermissive) as lets_in,
  exists (
    select from pg_policy p where p.polrelid = c.oid and p.polname = 'own_tenant' and not p.polpermissive
      and p.polcmd in ('r', '*')) as holds_back,
  array(
    select p.polname::text from pg_policy p
    where p.polrelid = c.oid and p.polname in ('everybody', 'own_tenant') order by p.polname) as named
from pg_class c where c.relnamespace = to_regnamespace(quote_ident($1)) and c.relname = any($2::text[])
order by c.relname"""


async def wall_vitals(db: Database, conn: Raw) -> WallVitals:
    """Look whether the wall stands."""
    role, schema = role_of(db.schema), f'"{db.schema}"'
    found = await conn.fetchrow(_ROLE, role, db.schema)
    gaps: list[str] = []
    account = await conn.fetchval("select current_user::text")
    if found is None:
        return WallVitals(role=role, is_made=False, statements=_made(schema, role, account))
    repairs = [] if found["sees_schema"] else [f'grant usage on schema {schema} to "{role}"']
    gaps += [f'"{role}" may not use the schema'] if repairs else []
    for row in await conn.fetch(_READS, role, db.schema):
        gap, repair = _right(role, f'{schema}."{row["name"]}"', row["name"], reads=row["reads"], writes=row["writes"])
        gaps += gap
        repairs += repair
    for row in await conn.fetch(_POLICIES, db.schema, list(WALLED)):
        table = f'{schema}."{row["name"]}"'
        if not (row["lets_in"] and row["holds_back"]):
            gaps.append(f"{row['name']} has not both of its policies")
            repairs += [f"drop policy {policy} on {table}" for policy in row["named"]]
            repairs += _policies(schema, row["name"], role)
        if not row["is_on"]:
            gaps.append(f"{row['name']} has no row security")
            repairs.append(f"alter table {table} enable row level security")
    if not found["may_be_taken"]:
        repairs.append(f'grant "{role}" to "{account}"')
    return WallVitals(
        role=role, is_made=True, may_be_taken=found["may_be_taken"], gaps=tuple(gaps), statements=tuple(repairs)
    )


def _right(role: str, table: str, name: str, *, reads: bool, writes: bool) -> tuple[list[str], list[str]]:
    """Give what is wrong with what the role may do to a table, and what mends it."""
    if writes or (reads and name in UNREAD):
        what = f'"{role}" may {"write to" if writes else "read"} {name}'
        again = [] if name in UNREAD else [f'grant select on {table} to "{role}"']
        return [what], [f'revoke all on {table} from "{role}"', *again]
    if not reads and name not in {*UNREAD, "alembic_version"}:
        return [f'"{role}" may not read {name}'], [f'grant select on {table} to "{role}"']
    return [], []


def _made(schema: str, role: str, account: str) -> tuple[str, ...]:
    unread = ", ".join(f"{schema}.{name}" for name in UNREAD)
    return (
        f'create role "{role}" nologin',
        f'grant usage on schema {schema} to "{role}"',
        f'grant select on all tables in schema {schema} to "{role}"',
        f'revoke all on {unread} from "{role}"',
        f'grant "{role}" to "{account}"',
    )


def _policies(schema: str, table: str, role: str) -> list[str]:
    own, passes = WALLED[table].format(schema=schema, table=table), f"current_user <> '{role}'"
    return [
        f"create policy everybody on {schema}.{table} using (true) with check (true)",
        f"create policy own_tenant on {schema}.{table} as restrictive for select using ({passes} or ({own}))",
    ]
