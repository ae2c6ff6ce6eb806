"""`publish`: staged rows become jobs of the same database, in one transaction of a few statements over whole sets.

A relay that is killed anywhere in it has done nothing. Locks the rows it takes (nobody waits for those), then what an
enqueue locks, in its order. Called by `outbox`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...domain.errors import OutlastError
from ...domain.job import Enqueued
from ...domain.outbox import Pass, StagedRow, is_refused_for_ever, refusal_of, summed, unfit
from ..protocol import Wake
from .database import Database, Raw
from .enqueue import store_within
from .enqueue_batch import HalfWonError
from .names import name_ids
from .notify import notify
from .outbox_looks import Looks
from .outbox_rows import LOOK, put_aside, staged_row
from .sqlstate import Taken, translate

_TAKE = f"with {LOOK} select * from w order by staged_at, id"  # noqa: S608  a fragment of our own
_DELETE = "delete from outlast.outbox where id = any($1::uuid[])"

# Each repetition means that somebody else committed in between.
_TRIES = 10


async def publish(db: Database, looks: Looks, batch: int) -> Pass:
    """Publish up to `batch` rows; all of them or, on an error, none."""
    tries = 0
    is_careful = False

    async def once(conn: Raw) -> Pass:
        look = looks.next()
        began = await conn.fetchval(db.in_schema("select outlast.clock()")) if look.is_whole else look.since
        async with conn.transaction():
            rows = await conn.fetch(db.in_schema(_TAKE), look.since, batch)
            transaction = _Publish(db=db, conn=conn, is_repeated=tries > 0, is_careful=is_careful)
            done = await transaction.rows([staged_row(row) for row in rows])
        is_full = looks.took(look, rows, batch, began)
        return replace(done, is_full=is_full)

    while True:
        try:
            done = await db.run(once)
        except (Taken, HalfWonError):
            looks.forget()
            tries += 1
            if tries >= _TRIES:
                raise
        except OutlastError as error:
            looks.forget()
            if is_careful or not is_refused_for_ever(error):
                raise
            is_careful = True  # one bad value fails its whole statement: find it
        else:
            if done.published:
                await notify(db, Wake.READY)
            return done


@dataclass(frozen=True, slots=True, kw_only=True)
class _Publish:
    """The rows of one transaction. `is_careful`: each by itself, so that one that fails leaves the others."""

    db: Database
    conn: Raw
    is_repeated: bool
    is_careful: bool

    async def rows(self, rows: Sequence[StagedRow]) -> Pass:
        """Make jobs of them, and let the rows go."""
        refusals = {row.id: refusal for row in rows if (refusal := unfit(row)) is not None}
        fit = [row for row in rows if row.id not in refusals]
        answers: list[tuple[StagedRow, Enqueued]] = []
        for row, verdict in zip(fit, await self._store(fit), strict=True):
            if not isinstance(verdict, OutlastError):
                answers.append((row, verdict))
            elif is_refused_for_ever(verdict):
                refusals[row.id] = refusal_of(row, verdict)
            else:
                raise verdict
        if answers:
            await self.conn.execute(self.db.in_schema(_DELETE), [row.id for row, _ in answers])
        if refusals:
            await put_aside(self.db, self.conn, tuple(refusals.values()), None)
        published, deduped = summed(answers)
        return Pass(published=published, deduped=deduped, quarantined=tuple(refusals.values()))

    async def _store(self, rows: Sequence[StagedRow]) -> Sequence[Enqueued | OutlastError]:
        names = await name_ids(self.db, (row.job.name for row in rows))
        if not self.is_careful:
            return await self._store_within(rows, names)
        return [await self._store_alone(row, names) for row in rows]

    async def _store_alone(self, row: StagedRow, names: Mapping[str, int]) -> Enqueued | OutlastError:
        try:
            async with self.conn.transaction():  # a savepoint
                return (await self._store_within([row], names))[0]
        except Exception as error:
            known = translate(error)
            if known is None or not is_refused_for_ever(known):
                raise
            return known

    async def _store_within(
        self, rows: Sequence[StagedRow], names: Mapping[str, int]
    ) -> Sequence[Enqueued | OutlastError]:
        jobs = [row.job for row in rows]
        return await store_within(self.db, self.conn, jobs, names, is_repeated=self.is_repeated) if jobs else ()
