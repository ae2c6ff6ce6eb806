"""`vitals`: the health of the store in facts, over one connection of the pool, whether or not the driver is open.

The server first, by its catalogs alone; then, where the schema is the code's, what lies in it that nobody may be there
for. Changes nothing. Called by the doctor.
"""

from __future__ import annotations

from ...domain.job import WorkerId
from ...domain.vitals import MOST_LOOKED_AT, LostLease, OnTheWay, ReadyGroup, Vitals, WorkVitals
from .database import Database, Raw, Row
from .moves_out import DELIVERED_WITHIN
from .tables import REQUIRED_REVISION
from .vitals_server import server_vitals

_READY = """
select g.queue, n.name, g.count
from (
  select x.queue, x.name_id, count(*) as count
  from (
    select r.queue, r.name_id from outlast.ready r union all select g.queue, g.name_id from outlast.gate g
    limit $1::int) x
  group by x.queue, x.name_id) g
left join lateral (select n.name from outlast.job_name n where n.id = g.name_id offset 0) n on true
order by g.queue, n.name"""
_LOST = """
select w.id, w.host, w.lease_until from outlast.worker w
where w.lost_at is null and w.closed_at is null and w.lease_until <= outlast.clock() order by w.lease_until limit 100"""
_STRANDED = """
select count(*) from outlast.running r
where not exists (
  select from outlast.worker w
  where w.id = r.worker and w.lost_at is null and w.closed_at is null and w.lease_until > outlast.clock())"""
_MOVES = """
select m.target, count(*) as count, count(*) filter (where m.taken_at < outlast.clock() - $1::interval) as late,
  min(m.taken_at) as since
from outlast.moving m group by m.target order by since, m.target"""


async def vitals(db: Database) -> Vitals:
    """Look the store over.

    Raises:
        DriverUnavailable: it does not answer.
    """

    async def look(conn: Raw) -> Vitals:
        at = await conn.fetchval("select clock_timestamp()")
        server = await server_vitals(db, conn)
        is_ours = server.revision is not None and server.revision >= REQUIRED_REVISION
        work = await _work(db, conn) if is_ours else None
        return Vitals(store="postgres", is_durable=True, at=at, server=server, work=work)

    return await db.run(look)


async def _work(db: Database, conn: Raw) -> WorkVitals:
    ready = await conn.fetch(db.in_schema(_READY), MOST_LOOKED_AT)
    lost = await conn.fetch(db.in_schema(_LOST))
    return WorkVitals(
        ready=tuple(_group(row) for row in ready),
        lost=tuple(
            LostLease(worker_id=WorkerId(row["id"]), host=row["host"], lease_until=row["lease_until"]) for row in lost
        ),
        stranded=await conn.fetchval(db.in_schema(_STRANDED)),
        moves=tuple(_on_the_way(row) for row in await conn.fetch(db.in_schema(_MOVES), DELIVERED_WITHIN)),
    )


def _group(row: Row) -> ReadyGroup:
    name, _, version = (row["name"] or "").partition("@")
    return ReadyGroup(queue=row["queue"], name=name, version=version or None, count=row["count"])


def _on_the_way(row: Row) -> OnTheWay:
    """Read a row; the store of a target is its server's number, its database and its schema."""
    database = row["target"].partition("/")[2].rpartition("/")[0]
    return OnTheWay(target=row["target"], database=database, count=row["count"], late=row["late"], since=row["since"])
