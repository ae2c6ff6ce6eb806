"""The verbs by which a relay publishes into another database: claim for a lease, then end, quarantine or release.

Each is one statement and commits by itself; all that change a claimed row name its claimant. Nobody waits for anybody:
rows that are locked are passed over by claim and recover, and the others are about rows of one relay. Called by
`outbox`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...domain.outbox import RELAY_LEASE, Claimed, OutboxId, Refusal, RelayId
from .database import Database, Raw
from .outbox_looks import Looks
from .outbox_rows import LOOK, RESTS, count_of, put_aside, rest, staged_row

_CLAIM = f"""
with {LOOK},
c as (
  update outlast.outbox o set state = 1, claimed_by = $3, lease_until = outlast.clock() + $4, claims = o.claims + 1
  where o.id = any(array(select id from w)) returning o.id)
select w.* from w where w.id = any(array(select id from c)) order by w.staged_at, w.id"""  # noqa: S608  our own

END = "delete from outlast.outbox where id = any($1::uuid[]) and state = 1 and claimed_by = $2"

_RELEASE = """
update outlast.outbox set state = 0, claimed_by = null, lease_until = null where state = 1 and claimed_by = $1"""
_RECOVER = f"""
with over as materialized (
  select id, claimed_by from outlast.outbox where state = 1 and lease_until <= outlast.clock()
  order by lease_until limit 10000 for update skip locked),
again as (
  update outlast.outbox set state = 0, claimed_by = null, lease_until = null
  where state = 1 and id = any(array(select id from over)))
select count(*) as rows, count(*) filter (where claimed_by <> {RESTS}) as lost from over"""  # noqa: S608  our own


async def claim(db: Database, looks: Looks, relay_id: RelayId, batch: int) -> Claimed:
    """Take up to `batch` staged rows for one lease."""

    async def once(conn: Raw) -> Claimed:
        look = looks.next()
        began = await conn.fetchval(db.in_schema("select outlast.clock()")) if look.is_whole else look.since
        rows = await conn.fetch(db.in_schema(_CLAIM), look.since, batch, relay_id, RELAY_LEASE)
        is_full = looks.took(look, rows, batch, began)
        return Claimed(rows=tuple(staged_row(row) for row in rows), is_full=is_full)

    try:
        return await db.run(once)
    except BaseException:
        looks.forget()
        raise


async def end(db: Database, relay_id: RelayId, ids: Sequence[OutboxId]) -> int:
    """Let published rows go."""
    return count_of(await db.run(lambda conn: conn.execute(db.in_schema(END), list(ids), relay_id)))


async def quarantine(db: Database, relay_id: RelayId, refusals: Sequence[Refusal]) -> int:
    """Put rows aside."""
    return await db.run(lambda conn: put_aside(db, conn, refusals, relay_id))


async def defer(db: Database, relay_id: RelayId, ids: Sequence[OutboxId]) -> int:
    """Let rows rest."""
    return await db.run(lambda conn: rest(db, conn, ids, relay_id))


async def release(db: Database, looks: Looks, relay_id: RelayId) -> int:
    """Stage again what a relay has claimed."""
    count = count_of(await db.run(lambda conn: conn.execute(db.in_schema(_RELEASE), relay_id)))
    if count:
        looks.forget()
    return count


async def recover(db: Database, looks: Looks) -> int:
    """Stage again what a lease that has passed was on."""
    row = await db.run(lambda conn: conn.fetchrow(db.in_schema(_RECOVER)))
    if row is None or not row["rows"]:
        return 0
    looks.forget()
    lost: int = row["lost"]
    return lost
