"""`place`, `enqueue_once`: jobs stored in one commit with the row of the audit, or the mark of a request, that says so.

The statement is enqueue's; only the transaction is this verb's own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from ...domain.audit import AuditEntry
from ...domain.errors import OutlastError
from ...domain.job import Enqueued, NewJob
from ...domain.request_claim import RequestClaim, stored_jobs
from ..protocol import Wake
from .audit import keep
from .database import Database, Raw
from .enqueue import store_within
from .enqueue_batch import HalfWonError
from .names import name_ids
from .notify import notify
from .requests import mark
from .run_locks import looking
from .sqlstate import Taken

# Each repetition means that somebody else committed in between.
_TRIES = 10


async def place(db: Database, job: NewJob, *, audit: AuditEntry) -> Enqueued:
    """Store a job and its row, or neither. Repeating the same ids is safe.

    Raises:
        OutlastError: what refused the job.
    """

    async def beside(conn: Raw, _: tuple[Enqueued, ...]) -> None:
        await keep(db, conn, audit)

    (answer,) = await _place(db, (job,), beside)
    return answer


async def enqueue_once(db: Database, jobs: Sequence[NewJob], claim: RequestClaim) -> tuple[Enqueued, ...]:
    """Store all jobs and mark the request that asks for them, or do neither. Repeating the same ids is safe.

    Raises:
        IdempotencyInFlight: somebody else does the request by now.
        OutlastError: what refused the first job that was, its `index` in the details.
    """

    async def beside(conn: Raw, answers: tuple[Enqueued, ...]) -> None:
        await mark(db, conn, claim, stored_jobs(answers))

    return await _place(db, jobs, beside, is_many=True)


async def _place(
    db: Database,
    jobs: Sequence[NewJob],
    beside: Callable[[Raw, tuple[Enqueued, ...]], Awaitable[None]],
    *,
    is_many: bool = False,
) -> tuple[Enqueued, ...]:
    names = await name_ids(db, {job.name for job in jobs})

    async def once(conn: Raw) -> tuple[Enqueued, ...]:
        async with looking(conn):
            # An id that is there already is this very job: an earlier call ended without its caller knowing how.
            answers = _all(await store_within(db, conn, jobs, names, is_repeated=True), is_many=is_many)
            await beside(conn, answers)
            return answers

    for _ in range(_TRIES - 1):
        try:
            answers = await db.run(once)
            break
        except (Taken, HalfWonError):
            continue
    else:
        answers = await db.run(once)
    # Whether `run_at` has passed is the server's to say: it may be either.
    if any(job.delay is None for job in jobs):
        await notify(db, Wake.READY)
    if any(job.delay is not None or job.run_at is not None for job in jobs):
        await notify(db, Wake.DELAYED)
    return answers


def _all(verdicts: Sequence[Enqueued | OutlastError], *, is_many: bool) -> tuple[Enqueued, ...]:
    """Give the answers, or raise the first refusal."""
    answers = []
    for index, verdict in enumerate(verdicts):
        if isinstance(verdict, OutlastError):
            if is_many:
                verdict.details["index"] = index
            raise verdict
        answers.append(verdict)
    return tuple(answers)
