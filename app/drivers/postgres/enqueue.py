"""Enqueue: envelopes, first tokens, keys and sources in one statement; refusals and lost races are its answers.

Owns the choice of the statement and its repetition: a key or source that moved while it ran is read again until there
is a row or a job that holds it. Queues with a maximum depth are counted by `enqueue_limited` first. Limits of payloads,
fingerprints and templates are admission's. Called by every producer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...domain.errors import OutlastError, RequestInvalid
from ...domain.job import Enqueued, NewJob
from ..protocol import Wake
from .database import Database, Raw, Row
from .enqueue_batch import Batch, HalfWonError, UncountedError, stored
from .enqueue_columns import is_plain, plain_columns
from .enqueue_lane import EnqueueLanes
from .enqueue_limited import LimitedError, Rooms, limited_among
from .enqueue_statements import (
    ENQUEUE,
    ENQUEUE_COUNTED,
    ENQUEUE_COUNTED_LIMITED,
    ENQUEUE_LIMITED,
    ENQUEUE_PLAIN,
    KNOWN_IDS,
    REMEMBER_SOURCES,
)
from .names import name_ids
from .notify import notify
from .sqlstate import Taken

MAX_BATCH = 50_000
# Of the short statement, which stores all or nothing.
NOTHING_STORED = "INSERT 0 0"
# Each repetition means that somebody else committed in between.
_TRIES = 10


async def enqueue(db: Database, lanes: EnqueueLanes, job: NewJob) -> Enqueued:
    """Store one job, durable when this returns; repeating the same id is safe.

    Raises:
        JobDuplicate: its key is taken and `on_conflict` is `error`.
        IdempotencyMismatch: its key belongs to a job with another payload.
        QueueFull: it is new, and its queue is at its maximum depth.
    """
    if job.key is None or job.source_id is None:
        return await lanes.of(job.queue).enqueue(job)
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
    is_short = is_plain(jobs) and not _are_asked_for(db, jobs)
    if is_short and await _store_plain(db, jobs):
        return stored(jobs)
    return (await _store(db, jobs, is_atomic=True, is_many=True, is_repeated=is_short)).in_order()


async def store_each(db: Database, jobs: Sequence[NewJob]) -> tuple[Enqueued | OutlastError, ...]:
    """Store jobs of callers that do not know each other, in one statement: what is refused leaves the others stored."""
    is_short = is_plain(jobs) and not _are_asked_for(db, jobs)
    if is_short and await _store_plain(db, jobs):
        return stored(jobs)
    return (await _store(db, jobs, is_atomic=False, is_repeated=is_short)).verdicts()


async def store_within(
    db: Database,
    conn: Raw,
    jobs: Sequence[NewJob],
    names: Mapping[str, int],
    *,
    is_repeated: bool = False,
    is_part: bool = False,
) -> tuple[Enqueued | OutlastError, ...]:
    """Store jobs inside a transaction that somebody else commits, each answered or refused by itself.

    Whoever commits notifies. `is_repeated`: an id that is there already is this very job. `is_part`: they belong to
    work that was taken in before, so that no queue is too full for them.

    Raises:
        HalfWonError: the transaction has to begin again.
        Taken: the same, with `is_repeated`.
    """
    batch = Batch(jobs, names)
    if is_repeated:
        batch.repeated(await conn.fetch(db.in_schema(KNOWN_IDS), *batch.ids()))
    if is_part:
        await _send_all(db, conn, batch)
    else:
        await _send(db, conn, batch, rooms=Rooms(db, conn))
    return batch.verdicts()


async def _store_plain(db: Database, jobs: Sequence[NewJob]) -> bool:
    """Store a batch by the short statement, all or none.

    False: an id is there already or stands twice, or a queue has a maximum depth or is fair.
    """
    columns = plain_columns(jobs, await name_ids(db, {job.name for job in jobs}))
    try:
        tag = await db.run(lambda conn: conn.execute(db.in_schema(ENQUEUE_PLAIN), *columns))
    except Taken:
        return False
    if tag == NOTHING_STORED:
        return False
    await notify(db, Wake.READY)
    return True


async def _store(
    db: Database, jobs: Sequence[NewJob], *, is_atomic: bool, is_many: bool = False, is_repeated: bool = False
) -> Batch:
    """Store a batch by the whole statement; `is_repeated`: some of the ids may be there already."""
    names = await name_ids(db, {job.name for job in jobs})
    tries = int(is_repeated)

    is_limited = _are_counted(db, jobs)

    async def once(conn: Raw) -> Batch:
        batch = Batch(jobs, names)
        if tries:
            # An id that is there already is this very job: an earlier call ended without its caller knowing how.
            batch.repeated(await conn.fetch(db.in_schema(KNOWN_IDS), *batch.ids()))
        if is_atomic or is_limited:
            async with conn.transaction():
                await _send(db, conn, batch, rooms=Rooms(db, conn))
                if is_atomic:
                    batch.refuse(is_many=is_many)
        else:
            await _send(db, conn, batch, rooms=None)
        return batch

    batch = None
    while batch is None:
        try:
            batch = await db.run(once)
        except LimitedError:
            is_limited = True  # it takes a transaction to count and to store
        except (Taken, HalfWonError):
            tries += 1
            if tries >= _TRIES:
                raise
    await _ring(db, batch)
    return batch


def _are_counted(db: Database, jobs: Sequence[NewJob]) -> bool:
    """Say whether some of their queues are known to have a maximum depth: nearly always none is."""
    return bool(db.limited.depth) and bool(limited_among(db, {job.queue for job in jobs}))


def _are_asked_for(db: Database, jobs: Sequence[NewJob]) -> bool:
    """Say the same, and likewise of fair ones."""
    return _are_counted(db, jobs) or (
        bool(db.limited.fair) and not db.limited.fair.isdisjoint(job.queue for job in jobs)
    )


async def _ring(db: Database, batch: Batch) -> None:
    if batch.has_ready:
        await notify(db, Wake.READY)
    if batch.has_delayed:
        await notify(db, Wake.DELAYED)


async def _send(db: Database, conn: Raw, batch: Batch, *, rooms: Rooms | None) -> None:
    """Send until every job is answered or refused; what lost a race is sent again and finds the winner.

    Without `rooms`, outside a transaction, nothing can be counted.

    Raises:
        LimitedError: it has to be counted; nothing was stored of what was pending.
        UncountedError: there is more to be counted, or to be lined up; the transaction has to begin again.
    """
    if rooms is not None:
        await rooms.open(batch.queues())
    while batch.is_pending:
        counted, plain = _statements(db, batch)
        columns = batch.columns()
        if rooms is not None and rooms.are_open:
            if not await rooms.fit(batch, columns):
                continue
            rows = _stored(db, batch, await conn.fetch(counted, *columns, rooms.names))
            if rows is None:
                raise UncountedError
            rooms.took(batch.read(rows))
            continue
        if (rows := _stored(db, batch, await conn.fetch(plain, *columns))) is not None:
            batch.read(rows)
            continue
        if rooms is None:
            raise LimitedError
        await rooms.open(batch.queues())
    if rooms is not None:
        await rooms.close()
    await _remember(db, conn, batch)


async def _send_all(db: Database, conn: Raw, batch: Batch) -> None:
    """Send likewise, whatever is in the queues."""
    counted, _ = _statements(db, batch)
    while batch.is_pending:
        asked = sorted(batch.queues())
        if (rows := _stored(db, batch, await conn.fetch(counted, *batch.columns(), asked))) is not None:
            batch.read(rows)
    await _remember(db, conn, batch)


def _statements(db: Database, batch: Batch) -> tuple[str, str]:
    """Give the statements for a batch: the one for who has counted, and the one for who has not."""
    if batch.asks_for_gate(db.limited.fair):
        return db.in_schema(ENQUEUE_COUNTED_LIMITED), db.in_schema(ENQUEUE_LIMITED)
    return db.in_schema(ENQUEUE_COUNTED), db.in_schema(ENQUEUE)


def _stored(db: Database, batch: Batch, rows: list[Row]) -> list[Row] | None:
    """Give what a statement says of the jobs, None where it stored nothing because of their queues, which it names.

    The last row of the statements for the gate says which of the batch's queues are fair.
    """
    if batch.is_gated:
        db.limited.fair -= batch.queues()
        db.limited.fair.update(rows[-1]["limited"])
        rows = rows[:-1]
    limited = rows[-1]["limited"] if rows else None
    if limited is None:
        return rows
    # Which of the two they are, the next look at their rows and the next statement say, and forget the others.
    db.limited.depth.update(limited)
    db.limited.fair.update(limited)
    return None


async def _remember(db: Database, conn: Raw, batch: Batch) -> None:
    sources, holders = batch.sources_to_remember()
    if sources:
        # A republish must find this job even after the key that led here is free again.
        await conn.execute(db.in_schema(REMEMBER_SOURCES), sources, holders)
