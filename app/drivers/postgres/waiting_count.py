"""`count_waiting`: how many ready and delayed jobs a tenant has, up to a number, whatever the store holds.

Looked for on two sides, each no further than a bound: among the tenant's newest jobs, without those that run, rest or
have ended; and where these are not all its jobs, among the first tokens of each bucket. Neither counts too many. Called
by the driver for the API's bound on tenants, at most once in a second.
"""

from __future__ import annotations

from ..reading import WAITING_LOOKED_AT
from .database import Database

# The index of tenants leaves the usual one out: of that its share of the newest jobs of all is looked at.
_DEFAULT = "default"
_OF_TENANT = f"select id from outlast.job where tenant = $1 and tenant <> '{_DEFAULT}' order by id desc limit $3"  # noqa: S608  our own
_OF_DEFAULT = "select id, tenant from outlast.job order by id desc limit $3"


def _is_in(table: str) -> str:
    """Give a scalar: `exists` may be planned as a hash of all rows."""
    return f"(select true from outlast.{table} t where t.job_id = m.id limit 1)"  # noqa: S608  our own


_ELSEWHERE = " and ".join(f"{_is_in(table)} is null" for table in ("finished", "suspended", "running", "held"))


def _newest(jobs: str, condition: str) -> str:
    return f"""
with m as materialized ({jobs})
select (select count(*) from (select from m where {condition}{_ELSEWHERE} limit $2) c) as n,
  (select count(*) from m) < $3 as is_whole"""  # noqa: S608  our own


_NEWEST = _newest(_OF_TENANT, "")
_NEWEST_OF_DEFAULT = _newest(_OF_DEFAULT, "m.tenant = $1 and ")
_FIRST = """
select count(*) from (
  select from (
    (select job_id from outlast.ready limit $3) union all (select job_id from outlast.waiting limit $3)
    union all (select job_id from outlast.gate limit $3)) t
  where (select j.tenant from outlast.job j where j.id = t.job_id) = $1 limit $2) c"""


async def count_waiting(db: Database, tenant: str, most: int) -> int:
    """Count a tenant's ready and delayed jobs, up to `most`."""
    binds = tenant, most, WAITING_LOOKED_AT + most
    newest = db.in_schema(_NEWEST_OF_DEFAULT if tenant == _DEFAULT else _NEWEST)
    row = await db.run(lambda conn: conn.fetchrow(newest, *binds))
    assert row is not None  # noqa: S101  a count is one row
    seen: int = row["n"]
    if seen >= most or row["is_whole"]:
        return seen
    first: int = await db.run(lambda conn: conn.fetchval(db.in_schema(_FIRST), *binds))
    return max(seen, first)
