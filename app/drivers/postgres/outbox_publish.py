"""`publish`: staged rows become jobs of the same database, in one transaction of a few statements over whole sets.

A relay that is killed anywhere in it has done nothing. Locks the rows it takes (nobody waits for those), then what an
enqueue locks, in its order. Called by `outbox`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from ...domain.errors import OutlastError
from ...domain.job import Enqueued
from ...domain.outbox import OutboxId, Pass, StagedRow, failure_of, is_for_full_queue, is_of_the_row, summed, unfit
from ..protocol import Wake
from .database import Database, Raw
from .enqueue import store_within
from .enqueue_batch import HalfWonError
from .names import name_ids
from .notify import notify
from .outbox_looks import Looks
from .outbox_rows import LOOK, put_aside, rest, staged_row
from .sqlstate import Taken, translate

_TAKE = f"with {LOOK} select * from w order by staged_at, id"  # noqa: S608  a fragment of our own
_REMEMBER = """
insert into outlast.source(source_id, job_id, expires_at)
select u.source_id, u.job_id, outlast.clock() + interval '90 days'
from unnest($1::uuid[], $2::uuid[]) u(source_id, job_id) order by u.source_id on conflict do nothing"""
_DELETE = "delete from outlast.outbox where id = any($1::uuid[])"

# Each repetition means that somebody else committed in between.
_TRIES = 10


async def publish(db: Database, looks: Looks, batch: int) -> Pass:
    """Publish up to `batch` rows; all of them or, on an error, none."""
    tries = 0
    is_careful = False

    async def once(conn: Raw) -> tuple[Pass, set[Wake]]:
        look = looks.next()
        began = await conn.fetchval(db.in_schema("select outlast.clock()")) if look.is_whole else look.since
        async with conn.transaction():
            rows = await conn.fetch(db.in_schema(_TAKE), look.since, batch)
            transaction = _Publish(db=db, conn=conn, is_repeated=tries > 0, is_careful=is_careful)
            done = await transaction.rows([staged_row(row) for row in rows])
        is_full = looks.took(look, rows, batch, began)
        return replace(done, is_full=is_full), transaction.wakes

    while True:
        try:
            done, wakes = await db.run(once)
        except (Taken, HalfWonError):
            looks.forget()
            tries += 1
            if tries >= _TRIES:
                raise
        except Exception as error:
            looks.forget()
            if is_careful or not is_of_the_row(error):
                raise
            is_careful = True  # one bad value fails its whole statement: find it
        else:
            await notify(db, *wakes)
            return done


@dataclass(frozen=True, slots=True, kw_only=True)
class _Publish:
    """The rows of one transaction. `is_careful`: each by itself, so that one that fails leaves the others."""

    db: Database
    conn: Raw
    is_repeated: bool
    is_careful: bool
    wakes: set[Wake] = field(default_factory=set)

    async def rows(self, rows: Sequence[StagedRow]) -> Pass:
        """Make jobs of them, and let the rows go."""
        refusals = {row.id: refusal for row in rows if (refusal := unfit(row)) is not None}
        fit = [row for row in rows if row.id not in refusals]
        answers: list[tuple[StagedRow, Enqueued]] = []
        full: list[OutboxId] = []
        while fit:
            leaders, followers = _by_key(fit)
            for row, verdict in zip(leaders, await self._store(leaders), strict=True):
                if isinstance(verdict, Enqueued):
                    answers.append((row, verdict))
                elif is_for_full_queue(verdict):
                    full.append(row.id)
                elif is_of_the_row(verdict):
                    refusals[row.id] = failure_of(row, verdict)
                else:
                    raise verdict
            led, fit = _led(followers, answers)
            await self._remember(led)
            answers += led
        if answers:
            await self.conn.execute(self.db.in_schema(_DELETE), [row.id for row, _ in answers])
        if refusals:
            await put_aside(self.db, self.conn, tuple(refusals.values()), None)
        if full:
            await rest(self.db, self.conn, full, None)
        for row in (row for row, answer in answers if answer.id == row.job.id):
            # Which of them were due by then is the store's to say.
            self.wakes.update({Wake.READY} if row.job.run_at is None else {Wake.READY, Wake.DELAYED})
        published, deduped = summed(answers)
        return Pass(published=published, deduped=deduped, deferred=len(full), quarantined=tuple(refusals.values()))

    async def _remember(self, led: Sequence[tuple[StagedRow, Enqueued]]) -> None:
        """Note the job that rows have come to, as an enqueue of them would."""
        if led:
            sources = [row.id for row, _ in led], [answer.id for _, answer in led]
            await self.conn.execute(self.db.in_schema(_REMEMBER), *sources)

    async def _store(self, rows: Sequence[StagedRow]) -> Sequence[Enqueued | Exception]:
        if not self.is_careful:
            return await self._store_within(rows)
        return [await self._store_alone(row) for row in rows]

    async def _store_alone(self, row: StagedRow) -> Enqueued | Exception:
        try:
            async with self.conn.transaction():  # a savepoint
                return (await self._store_within([row]))[0]
        except HalfWonError:
            raise
        except Exception as error:
            known = translate(error) or error
            if isinstance(known, Taken) or not is_of_the_row(known):
                raise
            return known

    async def _store_within(self, rows: Sequence[StagedRow]) -> Sequence[Enqueued | OutlastError]:
        jobs = [row.job for row in rows]
        if not jobs:
            return ()
        names = await name_ids(self.db, (job.name for job in jobs))
        return await store_within(self.db, self.conn, jobs, names, is_repeated=self.is_repeated)


def _by_key(rows: Sequence[StagedRow]) -> tuple[list[StagedRow], list[StagedRow]]:
    """Part rows into the first of each key, with those without one, and the others, which can only follow it."""
    leaders: list[StagedRow] = []
    followers: list[StagedRow] = []
    seen: set[UUID] = set()
    for row in rows:
        key = row.job.key_hash
        (followers if key in seen else leaders).append(row)
        if key is not None:
            seen.add(key)
    return leaders, followers


def _led(
    followers: Sequence[StagedRow], answers: Sequence[tuple[StagedRow, Enqueued]]
) -> tuple[list[tuple[StagedRow, Enqueued]], list[StagedRow]]:
    """Part followers into those whose leader came to a job with the same payload, and those that must ask themselves.

    What was true of the key when the leader asked is true of them: no order among staged rows is promised.
    """
    by_key = {row.job.key_hash: (row.job.fingerprint, answer) for row, answer in answers if row.job.key is not None}
    led: list[tuple[StagedRow, Enqueued]] = []
    left: list[StagedRow] = []
    for row in followers:
        fingerprint, answer = by_key.get(row.job.key_hash, (None, None))
        if answer is not None and fingerprint == row.job.fingerprint:
            led.append((row, replace(answer, deduped=True)))
        else:
            left.append(row)
    return led, left
