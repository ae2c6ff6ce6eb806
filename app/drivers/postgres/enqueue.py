"""Enqueue: envelopes, first tokens, keys and sources in one statement; refusals and lost races are its answers.

Owns the choice of the statement and its repetition: a key or source that moved while it ran is read again until there
is a row or a job that holds it. Limits, fingerprints and templates are admission's. Called by every producer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...domain.errors import OutlastError, RequestInvalid
from ...domain.job import Enqueued, NewJob
from ..protocol import Wake
from .database import Database, Raw
from .enqueue_batch import Batch, HalfWonError, stored
from .enqueue_columns import is_plain, plain_columns
from .enqueue_lane import EnqueueLane
from .enqueue_statements import ENQUEUE, ENQUEUE_PLAIN, KNOWN_IDS, REMEMBER_SOURCES
from .names import name_ids
from .notify import notify
from .sqlstate import Taken

MAX_BATCH = 50_000
# Each repetition means that somebody else committed in between.
_TRIES = 10


async def enqueue(db: Database, lane: EnqueueLane, job: NewJob) -> Enqueued:
    """Store one job, durable when this returns; repeating the same id is safe.

    Raises:
        JobDuplicate: its key is taken and `on_conflict` is `error`.
        IdempotencyMismatch: its key belongs to a job with another payload.
    """
    if job.key is None or job.source_id is None:
        return await lane.enqueue(job)
    # Key and source are two rows to win: only a transaction can give one back when the other is lost.
    batch = await _store(db, (job,), is_atomic=True)
    return batch.in_order()[0]


async def enqueue_many(db: Database, jobs: Sequence[NewJob]) -> tuple[Enqueued, ...]:
    """Store all jobs or none, in one transaction; answers in order.

    Raises:
        RequestInvalid: more jobs than a batch may have.
        OutlastError: the first refusal, its `index` in the details; nothing is stored then.
    """
    if len(jobs) > MAX_BATCH:
        raise RequestInvalid(
            f"a batch of {len(jobs)} jobs is over the limit of {MAX_BATCH}",
            fix=f"send batches of at most {MAX_BATCH} jobs",
        )
    if not jobs:
        return ()
    is_short = is_plain(jobs)
    if is_short and await _store_plain(db, jobs):
        return stored(jobs)
    return (await _store(db, jobs, is_atomic=True, is_many=True, is_repeated=is_short)).in_order()


async def store_each(db: Database, jobs: Sequence[NewJob]) -> tuple[Enqueued | OutlastError, ...]:
    """Store jobs of callers that do not know each other, in one statement: what is refused leaves the others stored."""
    is_short = is_plain(jobs)
    if is_short and await _store_plain(db, jobs):
        return stored(jobs)
    return (await _store(db, jobs, is_atomic=False, is_repeated=is_short)).verdicts()


async def store_within(
    db: Database, conn: Raw, jobs: Sequence[NewJob], names: Mapping[str, int], *, is_repeated: bool = False
) -> tuple[Enqueued | OutlastError, ...]:
    """Store jobs inside a transaction that somebody else commits, each answered or refused by itself.

    Whoever commits notifies. `is_repeated`: an id that is there already is this very job.

    Raises:
        HalfWonError: the transaction has to begin again.
        Taken: the same, with `is_repeated`.
    """
    batch = Batch(jobs, names)
    if is_repeated:
        batch.repeated(await conn.fetch(db.in_schema(KNOWN_IDS), *batch.ids()))
    await _send(db, conn, batch)
    return batch.verdicts()


async def _store_plain(db: Database, jobs: Sequence[NewJob]) -> bool:
    """Store a batch by the short statement, all or none; False: an id is there already, or stands twice."""
    columns = plain_columns(jobs, await name_ids(db, {job.name for job in jobs}))
    try:
        await db.run(lambda conn: conn.fetch(db.in_schema(ENQUEUE_PLAIN), *columns))
    except Taken:
        return False
    await notify(db, Wake.READY)
    return True


async def _store(
    db: Database, jobs: Sequence[NewJob], *, is_atomic: bool, is_many: bool = False, is_repeated: bool = False
) -> Batch:
    """Store a batch by the whole statement; `is_repeated`: some of the ids may be there already."""
    names = await name_ids(db, {job.name for job in jobs})
    tries = int(is_repeated)

    async def once(conn: Raw) -> Batch:
        batch = Batch(jobs, names)
        if tries:
            # An id that is there already is this very job: an earlier call ended without its caller knowing how.
            batch.repeated(await conn.fetch(db.in_schema(KNOWN_IDS), *batch.ids()))
        if is_atomic:
            async with conn.transaction():
                await _send(db, conn, batch)
                batch.refuse(is_many=is_many)
        else:
            await _send(db, conn, batch)
        return batch

    batch = None
    while batch is None:
        try:
            batch = await db.run(once)
        except (Taken, HalfWonError):
            tries += 1
            if tries >= _TRIES:
                raise
    if batch.has_ready:
        await notify(db, Wake.READY)
    if batch.has_delayed:
        await notify(db, Wake.DELAYED)
    return batch


async def _send(db: Database, conn: Raw, batch: Batch) -> None:
    """Send until every job is answered or refused; what lost a race is sent again and finds the winner."""
    while batch.is_pending:
        batch.read(await conn.fetch(db.in_schema(ENQUEUE), *batch.columns()))
    sources, holders = batch.sources_to_remember()
    if sources:
        # A republish must find this job even after the key that led here is free again.
        await conn.execute(db.in_schema(REMEMBER_SOURCES), sources, holders)
