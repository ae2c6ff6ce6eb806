"""`emit` and `events`: an event is stored and ends the waits it matches, in one commit.

Holds the lock of (tenant, name, key) that a suspend takes for a wait that is new: whichever comes second sees the
other. Under it numbers are drawn, so the events of a key are numbered in the order of their commits.
"""

from __future__ import annotations

from ...domain.event import Emitted, EventId, EventQuery, EventView, NewEvent
from ...domain.request_claim import RequestClaim, emitted_event
from ..protocol import Wake
from .database import Database, Raw
from .notify import notify
from .reader import Reader
from .requests import mark
from .resolve import RESOLVE
from .rows import plain
from .run_locks import event_lock, looking, take
from .tenant_wall import behind

_MATCHES = "w.tenant = $1 and w.event = $2 and w.event_key = $3"

# Locked in the order of ids, by which they are not looked for: an index that has that order is not asked.
WAITERS = f"select w.job_id from outlast.wait w where {_MATCHES} order by (w.job_id, w.name) for update"  # noqa: S608  our own

# Of the waits of one run, the first that began. A repeated event is stored already, and ends nothing.
EMIT = f"""
with first as materialized (
  select distinct on (w.job_id) w.* from (
    select w.*, w.ctid from outlast.wait w where {_MATCHES} offset 0) w
  order by w.job_id, w.began_at, w.number, w.name),
ev as (
  insert into outlast.event(id, tenant, name, key, payload, emitted_by, matched)
  select $4, $1, $2, $3, $5, $6, (select count(*) from first)
  on conflict (id) do nothing returning seq, matched),
over as materialized (
  select f.*, $5::text as value, ev.seq as event_seq, false as is_kept from first f cross join ev),
{RESOLVE.strip()}
select ev.matched, (select count(*) from woken) as woken from ev"""  # noqa: S608  fragments of our own

_MATCHED = "select matched from outlast.event where id = $1"

_EVENTS = """
select seq, id, tenant, name, key, payload, emitted_at, emitted_by, matched from outlast.event
where ($1::text is null or tenant = $1) and ($2::text is null or name = $2) and ($3::text is null or key = $3)
  and ($4::bigint is null or seq < $4)
order by seq desc limit $5"""
# Where the key is given whole, its own index has the order.
_EVENTS_OF_KEY = """
select seq, id, tenant, name, key, payload, emitted_at, emitted_by, matched from outlast.event
where tenant = $1 and name = $2 and key = $3 and seq < coalesce($4::bigint, 9223372036854775807)
order by tenant desc, name desc, key desc, seq desc limit $5"""


async def emit(db: Database, event: NewEvent, claim: RequestClaim | None = None) -> Emitted:
    """Store an event and end the waits it matches; repeating the same id changes nothing.

    Raises:
        IdempotencyInFlight: the request that asks for it is done by somebody else.
    """
    key = event.tenant, event.name, event.key

    async def once(conn: Raw) -> tuple[Emitted, int]:
        async with looking(conn):
            await take(conn, (event_lock(db, *key),))
            await conn.fetch(db.in_schema(WAITERS), *key)
            row = await conn.fetchrow(db.in_schema(EMIT), *key, event.id, event.payload, event.emitted_by)
            if row is None:
                matched = await conn.fetchval(db.in_schema(_MATCHED), event.id)
                return Emitted(id=event.id, matched=matched, is_repeated=True), 0
            emitted = Emitted(id=event.id, matched=row["matched"])
            await mark(db, conn, claim, emitted_event(emitted))
            return emitted, row["woken"]

    emitted, woken = await db.run(once)
    if woken:
        await notify(db, Wake.READY)
    return emitted


async def events(db: Reader, query: EventQuery) -> tuple[EventView, ...]:
    """Give stored events, newest first."""
    is_of_one_key = None not in (query.tenant, query.name, query.key)
    sql = db.in_schema(_EVENTS_OF_KEY if is_of_one_key else _EVENTS)
    binds = query.tenant, query.name, query.key, query.before, query.limit
    rows = await behind(db, query.tenant, lambda conn: conn.fetch(sql, *binds))
    return tuple(
        EventView(
            id=EventId(plain(row["id"])),
            seq=row["seq"],
            tenant=row["tenant"],
            name=row["name"],
            key=row["key"],
            payload=row["payload"],
            emitted_at=row["emitted_at"],
            emitted_by=row["emitted_by"],
            matched=row["matched"],
        )
        for row in rows
    )
