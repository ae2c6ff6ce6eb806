"""The second wall between tenants: rows of another tenant are absent at the server, whatever a statement forgets.

What a caller of one tenant reads is read as a role that only reads, in a transaction that says which tenant it is; row
security then hides every other one's jobs, events, audit, bulk operations and staged rows. What it does to a job by id
is begun only if the job is seen that way. Callers for all tenants, workers and the command line pass by: they read as
whom they are connected as, and cost nothing more. Where the role is missing the predicates of the statements stand
alone, and the driver says so. Owns the role, and no policy: those are the migrations'.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

from ...domain.job import JobId
from .absent import not_found
from .database import Database, Raw
from .reader import Reader

T = TypeVar("T")

# For the transaction alone, as a pooler wants it.
_ENTER = "select set_config('role', $1, true), set_config('outlast.tenant', $2, true)"
_SEES = "select true from outlast.job where id = $1"
_EXISTS = "select exists (select from pg_roles where rolname = $1)"
_STANDS = """
select c.relrowsecurity and has_table_privilege(current_user, c.oid, 'select') from pg_class c
where c.oid = to_regclass($1)"""


def role_of(schema: str) -> str:
    """Give the name of the role that reads for callers of one tenant."""
    return f"{schema}_api"


async def find_wall(db: Database, conn: Raw) -> str | None:
    """Give the role behind which callers read; None where there is none, or it may not be taken."""
    role = role_of(db.schema)
    if not await conn.fetchval(_EXISTS, role):
        return None
    try:
        async with conn.transaction():
            await conn.fetchval(_ENTER, role, "")
            stands = await conn.fetchval(_STANDS, db.in_schema("outlast.job"))
    except asyncpg.PostgresError:  # may not be taken
        return None
    return role if stands else None


async def behind(db: Reader, tenant: str | None, verb: Callable[[Raw], Awaitable[T]]) -> T:
    """Run a verb that reads, for a caller of one tenant behind the wall; contended ones are repeated as in `run`."""
    if tenant is None or db.api_role is None:
        return await db.run(verb)

    async def once(conn: Raw) -> T:
        async with conn.transaction():
            await enter(db, conn, tenant)
            return await verb(conn)

    return await db.run(once)


async def enter(db: Reader, conn: Raw, tenant: str | None) -> None:
    """Go behind the wall for the rest of the transaction at hand, for a caller of one tenant."""
    if tenant is not None and db.api_role is not None:
        await conn.fetchval(_ENTER, db.api_role, tenant)


async def admit(db: Database, job_id: JobId, tenant: str | None) -> None:
    """Let a verb on a job by id begin. A job never changes its tenant, so what is seen here still holds then.

    Raises:
        JobNotFound: behind the wall there is no such job.
    """
    if tenant is None or db.api_role is None:
        return
    if not await behind(db, tenant, lambda conn: conn.fetchval(db.in_schema(_SEES), job_id)):
        raise not_found(job_id)
