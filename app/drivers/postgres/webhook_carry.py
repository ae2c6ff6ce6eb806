"""`carry`: deliveries whose job has ended are handed to jobs that carry them, in one transaction of whole sets.

A worker that is killed anywhere in it has done nothing: the deliveries wait where the ends of their jobs left them.
Locks the deliveries it takes (nobody waits for those), then what an enqueue locks. Called by `webhooks`.
"""

from __future__ import annotations

from collections.abc import Callable

from ...domain.job import Enqueued, NewJob
from ...domain.webhook import CARRIER, Delivery
from ..protocol import Wake
from .database import Database, Raw
from .enqueue import store_within
from .enqueue_batch import HalfWonError
from .names import name_ids
from .notify import notify
from .sqlstate import Taken
from .webhook_rows import PENDING, delivery_of

# Whether there is anything to carry: for the look at what is due.
UNCARRIED = f"""(select true from outlast.delivery d
    where d.carrier is null and d.state = {PENDING} order by d.ended_at limit 1) is not null"""  # noqa: S608  a code of our own

_TAKE = f"""
select d.* from outlast.delivery d where d.carrier is null and d.state = {PENDING}
order by d.ended_at limit $1 for update skip locked"""  # noqa: S608  same
_CARRIED = """
update outlast.delivery d set carrier = u.carrier
from unnest($1::uuid[], $2::uuid[]) u(id, carrier) where d.id = u.id"""

# Each repetition means that somebody else committed in between.
_TRIES = 10


async def carry(db: Database, make: Callable[[Delivery], NewJob], batch: int) -> int:
    """Make the jobs of up to `batch` deliveries that have none."""
    names = await name_ids(db, [CARRIER])

    async def once(conn: Raw) -> int:
        async with conn.transaction():
            found = [delivery_of(row) for row in await conn.fetch(db.in_schema(_TAKE), batch)]
            jobs = [make(delivery) for delivery in found]
            for verdict in await store_within(db, conn, jobs, names, is_part=True) if jobs else ():
                if not isinstance(verdict, Enqueued):
                    raise verdict
            if jobs:
                ids = [delivery.id for delivery in found]
                await conn.execute(db.in_schema(_CARRIED), ids, [job.id for job in jobs])
        return len(jobs)

    tries = 0
    while True:
        try:
            count = await db.run(once)
        except (Taken, HalfWonError):
            tries += 1
            if tries >= _TRIES:
                raise
        else:
            if count:
                await notify(db, Wake.READY)
            return count
