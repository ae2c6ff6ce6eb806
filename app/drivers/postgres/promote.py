"""`promote`: delayed jobs whose time has come become ready, in the order of their times.

The lane was decided when the job was put to wait and travels in its rank. Passes over what a cancel or another promoter
holds, so it waits for nobody, and does not look at times it has done with. Called by any worker.
"""

from __future__ import annotations

from ..protocol import Wake
from .database import Database, Raw
from .notify import notify

# The delete takes the transaction id before `ready` draws its numbers: a claim may rely on that order.
PROMOTE = """
with due as materialized (
  select ctid from outlast.waiting where due_at >= $2 and due_at <= outlast.clock()
  order by due_at limit $1 for update skip locked),
t as (delete from outlast.waiting w where w.ctid = any(array(select ctid from due)) returning w.*),
r as (
  insert into outlast.ready(queue, rank, job_id, name_id, attempt, claim_no, crashes, interrupts)
  select queue, rank, job_id, name_id, attempt, claim_no, crashes, interrupts from t order by due_at, job_id)
select count(*) as promoted, case when count(*) < $1 then outlast.clock() else max(due_at) end as looked_to from t"""


async def promote(db: Database, batch: int = 1000) -> int:
    """Make up to `batch` due jobs ready; gives their number, less than `batch` when no more are due.

    A job that becomes visible more than ten seconds after its time, because what delayed it was that slow to commit,
    may be met up to half a minute later.
    """

    async def look(conn: Raw) -> int:
        (row,) = await conn.fetch(db.in_schema(PROMOTE), batch, db.due_mark.begin(conn))
        db.due_mark.learn(row["looked_to"])
        promoted: int = row["promoted"]
        return promoted

    promoted = await db.run(look)
    if promoted:
        await notify(db, Wake.READY)
    return promoted
