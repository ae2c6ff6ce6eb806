"""A batch on its way in: what each job is answered, what refused it, and what must be sent again.

Turns jobs into the columns of the enqueue statement and its rows into answers. No I/O. Used by `enqueue` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from uuid import UUID

from ...domain.errors import IdempotencyMismatch, JobDuplicate, OutlastError
from ...domain.job import Enqueued, JobId, NewJob, RunId
from ...domain.queue import queue_full
from .database import Row
from .enqueue_columns import Column, all_columns, limit_columns
from .rows import plain


class HalfWonError(Exception):
    """A job won its key and lost its source, or the other way round: the transaction begins again."""


class UncountedError(HalfWonError):
    """Beside what was counted there is a queue to be counted: locks have an order, so the transaction begins again."""


class Batch:
    """The jobs of one enqueue, by their index."""

    def __init__(self, jobs: Sequence[NewJob], names: Mapping[str, int]) -> None:
        self._jobs = jobs
        self._names = names
        self._hashes = [job.key_hash for job in jobs]
        self._first_of: dict[JobId, int] = {}
        for index, job in enumerate(jobs):
            self._first_of.setdefault(job.id, index)
        self._pending = list(self._first_of.values())
        self._sent: list[int] = []
        self._answers: dict[int, Enqueued] = {}
        self._refusals: dict[int, OutlastError] = {}
        self._is_limited = any(job.limits for job in jobs)
        self.is_gated = self._is_limited
        self.has_ready = False
        self.has_delayed = False

    @property
    def is_pending(self) -> bool:
        """Say whether a job has neither answer nor refusal."""
        return bool(self._pending)

    def asks_for_gate(self, fair: AbstractSet[str]) -> bool:
        """Say whether some of the pending jobs may be for the gate: limited ones, and those of queues said to be fair.

        What `columns` gives fits the statement that takes these, until it is asked again.
        """
        self.is_gated = self._is_limited or (bool(fair) and not fair.isdisjoint(self.queues()))
        return self.is_gated

    def ids(self) -> tuple[list[int], list[JobId]]:
        """Give the pending jobs' indexes and ids."""
        return self._pending, [self._jobs[index].id for index in self._pending]

    def columns(self) -> list[Column]:
        """Give the next round as columns; of jobs that share a key or a source the first, as each must see the last."""
        self._sent = []
        seen: set[UUID] = set()
        for index in self._pending:
            wanted = {value for value in (self._hashes[index], self._jobs[index].source_id) if value is not None}
            if seen.isdisjoint(wanted):
                self._sent.append(index)
            seen |= wanted
        jobs = [self._jobs[index] for index in self._sent]
        hashes = [self._hashes[index] for index in self._sent]
        columns = all_columns(jobs, self._names, places=self._sent, hashes=hashes)
        return [*columns, *limit_columns(jobs)] if self.is_gated else columns

    def queues(self) -> set[str]:
        """Give the queues of the pending jobs."""
        return {self._jobs[index].queue for index in self._pending}

    def sent(self) -> list[tuple[int, str]]:
        """Give the jobs of the round that `columns` has given last, by index, and their queues."""
        return [(index, self._jobs[index].queue) for index in self._sent]

    def found(self, rows: Iterable[Row]) -> None:
        """Answer or refuse jobs of the round that are held already, before it is sent."""
        for row in rows:
            self._found(row["ord"], row)
        self._settle_pending()

    def refuse_full(self, indexes: Iterable[int], max_depth: int) -> None:
        """Refuse jobs for which their queue has no room."""
        for index in indexes:
            self._refusals[index] = queue_full(self._jobs[index].queue, max_depth)
        self._settle_pending()

    def read(self, rows: Iterable[Row]) -> list[str]:
        """Take the answers of a round, and give the queues of its new jobs, one for each.

        Whatever the statement does not speak of is stored.

        Raises:
            HalfWonError: a job must be taken back.
        """
        lost: set[int] = set()
        expiries: dict[int, datetime] = {}
        for row in rows:
            match row["how"]:
                case "known":
                    self._found(row["ord"], row)
                case "stored":
                    expiries[row["ord"]] = row["expires_at"]
                case _ if row["half"]:
                    raise HalfWonError
                case _:
                    lost.add(row["ord"])
        new: list[str] = []
        for index in self._sent:
            if index not in lost and index not in self._answers and index not in self._refusals:
                new.append(self._jobs[index].queue)
                self._answers[index] = _own(self._jobs[index], expires_at=expiries.get(index))
                job = self._jobs[index]
                # Whether `run_at` has passed is the server's to say: it may be either.
                self.has_ready |= job.delay is None
                self.has_delayed |= job.delay is not None or job.run_at is not None
        self._settle_pending()
        return new

    def repeated(self, rows: Iterable[Row]) -> None:
        """Answer jobs whose ids are stored already as the call that stored them was."""
        for row in rows:
            self._answers[row["ord"]] = _own(self._jobs[row["ord"]], run_id=row["run_id"], expires_at=row["expires_at"])
        self._settle_pending()

    def refuse(self, *, is_many: bool) -> None:
        """Raise the first refusal, if there is one.

        Raises:
            OutlastError: what refused the job; in a batch its `index` is in the details.
        """
        if self._refusals:
            index = min(self._refusals)
            if is_many:
                self._refusals[index].details["index"] = index
            raise self._refusals[index]

    def sources_to_remember(self) -> tuple[list[UUID], list[JobId]]:
        """Give the sources whose job turned out to be another one, held by the key, and that job."""
        found = [
            (job.source_id, self._answers[index].id)
            for index, job in enumerate(self._jobs)
            if job.source_id is not None and job.key is not None and index in self._answers
            if self._answers[index].deduped
        ]
        return [source for source, _ in found], [holder for _, holder in found]

    def in_order(self) -> tuple[Enqueued, ...]:
        """Give the answers; an id that stands twice in a batch is one job."""
        return tuple(self._answers[self._first_of[job.id]] for job in self._jobs)

    def verdicts(self) -> tuple[Enqueued | OutlastError, ...]:
        """Give each job's answer or refusal."""
        firsts = (self._first_of[job.id] for job in self._jobs)
        return tuple(self._answers.get(index) or self._refusals[index] for index in firsts)

    def _settle_pending(self) -> None:
        self._pending = [i for i in self._pending if i not in self._answers and i not in self._refusals]

    def _found(self, index: int, row: Row) -> None:
        """Answer or refuse a job whose key or source is held."""
        job = self._jobs[index]
        holder = JobId(plain(row["job_id"]))
        run_id = RunId(holder if row["run_id"] is None else plain(row["run_id"]))
        if row["by_source"]:
            self._answers[index] = Enqueued(id=holder, run_id=run_id, deduped=True)
        elif holder == job.id:
            self._answers[index] = Enqueued(id=holder, run_id=run_id, deduped=False, key_expires_at=row["expires_at"])
        elif row["is_own"]:
            # An earlier call stored it, and its key went to another job since.
            self._answers[index] = _own(job)
        elif row["mismatch"]:
            self._refusals[index] = IdempotencyMismatch(
                f"the key {job.key!r} of {job.name} belongs to job {holder}, which has another payload",
                fix="send the first payload again, or choose another key",
                existing_id=holder,
            )
        elif job.on_conflict == "error":
            self._refusals[index] = JobDuplicate(
                f"the key {job.key!r} of {job.name} is held by job {holder}",
                fix="use that job, or wait until it has ended",
                existing_id=holder,
            )
        else:
            self._answers[index] = Enqueued(id=holder, run_id=run_id, deduped=True, key_expires_at=row["expires_at"])


def stored(jobs: Sequence[NewJob]) -> tuple[Enqueued, ...]:
    """Give the answers to jobs that all were stored by the short statement."""
    return tuple([Enqueued(id=job.id, run_id=RunId(job.id), deduped=False) for job in jobs])


def _own(job: NewJob, *, run_id: UUID | None = None, expires_at: datetime | None = None) -> Enqueued:
    run = RunId(job.id if run_id is None else plain(run_id))
    return Enqueued(id=job.id, run_id=run, deduped=False, key_expires_at=expires_at)
