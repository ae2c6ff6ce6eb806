"""`promote`: delayed jobs whose time has come become ready, in the order of their times.

The lane was decided when the job was put to wait and travels in its rank. Passes over what a cancel or another promoter
holds, so it waits for nobody. Called by any worker.
"""

from __future__ import annotations

from ..protocol import Wake
from .database import Database
from .notify import notify

# The delete takes the transaction id before `ready` draws its numbers: a claim may rely on that order.
_PROMOTE = """
with due as materialized (
  select ctid from outlast.waiting where due_at <= outlast.clock() order by due_at limit $1 for update skip locked),
t as (delete from outlast.waiting w where w.ctid = any(array(select ctid from due)) returning w.*)
insert into outlast.ready(queue, rank, job_id, name_id, attempt, claim_no, crashes, interrupts)
select queue, rank, job_id, name_id, attempt, claim_no, crashes, interrupts from t order by due_at, job_id"""


async def promote(db: Database, batch: int = 1000) -> int:
    """Make up to `batch` due jobs ready; gives their number, less than `batch` when no more are due."""
    tag = await db.run(lambda conn: conn.execute(db.in_schema(_PROMOTE), batch))
    promoted = int(tag.rpartition(" ")[2])
    if promoted:
        await notify(db, Wake.READY)
    return promoted
