"""`place`: a job that an operator makes, stored in one commit with the row of the audit that says so.

The statement is enqueue's; only the transaction is this verb's own.
"""

from __future__ import annotations

from ...domain.audit import AuditEntry
from ...domain.errors import OutlastError
from ...domain.job import Enqueued, NewJob
from ..protocol import Wake
from .audit import keep
from .database import Database, Raw
from .enqueue import store_within
from .enqueue_batch import HalfWonError
from .names import name_ids
from .notify import notify
from .run_locks import looking
from .sqlstate import Taken

# Each repetition means that somebody else committed in between.
_TRIES = 10


async def place(db: Database, job: NewJob, *, audit: AuditEntry) -> Enqueued:
    """Store a job and its row, or neither. Repeating the same ids is safe.

    Raises:
        OutlastError: what refused the job.
    """
    names = await name_ids(db, {job.name})

    async def once(conn: Raw) -> Enqueued:
        async with looking(conn):
            # An id that is there already is this very job: an earlier call ended without its caller knowing how.
            (answer,) = await store_within(db, conn, [job], names, is_repeated=True)
            if isinstance(answer, OutlastError):
                raise answer
            await keep(db, conn, audit)
            return answer

    for _ in range(_TRIES - 1):
        try:
            answer = await db.run(once)
            break
        except (Taken, HalfWonError):
            continue
    else:
        answer = await db.run(once)
    await notify(db, Wake.READY if job.delay is None and job.run_at is None else Wake.DELAYED)
    return answer
