"""Jobs as the columns the enqueue statements take: what is the same in all of a batch is sent once.

Most batches are of one job type with no options, so most columns are one value or none at all. No I/O. Called by
`enqueue` and `enqueue_batch`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from ...domain.job import NewJob

Column = list[object]


def is_plain(jobs: Sequence[NewJob]) -> bool:
    """Say whether no job of a batch has anything that must be won, remembered or waited for: the short statement's."""
    for job in jobs:  # a loop, as this runs for every job there is
        if (
            job.key is not None
            or job.source_id is not None
            or job.delay is not None
            or job.run_at is not None
            or job.deadline is not None
            or job.max_queue_time is not None
            or job.limits
            or job.callback is not None
        ):
            return False
    return True


def plain_columns(jobs: Sequence[NewJob], names: Mapping[str, int]) -> list[Column]:
    """Give what every job has, in the order of the statements; `jobs` are one or more."""
    return [
        [job.id for job in jobs],
        [job.payload for job in jobs],
        _same([names[job.name] for job in jobs]),
        _same([job.queue for job in jobs]),
        _same([job.priority for job in jobs]),
        _same([job.tenant for job in jobs]),
        _same([job.max_attempts for job in jobs]),
        _same([job.max_crashes for job in jobs]),
        _some([None if job.timeout is None else _milliseconds(job.timeout) for job in jobs]),
        _some([job.parent_id for job in jobs]),
        _some([job.enqueued_by for job in jobs]),
        _some([job.traceparent for job in jobs]),
        _some([_array(job.tags) if job.tags else None for job in jobs]),
        _some([job.meta for job in jobs]),
    ]


def all_columns(
    jobs: Sequence[NewJob], names: Mapping[str, int], *, places: Sequence[int], hashes: Sequence[UUID | None]
) -> list[Column]:
    """Give everything a job can have; `places` are the jobs' indexes in their batch, `hashes` those of their keys."""
    return [
        *plain_columns(jobs, names),
        list(places),
        _some([job.key for job in jobs]),
        _some(list(hashes)),
        [None if job.key is None else _signed(job.fingerprint) for job in jobs],
        _some([None if job.key is None else job.dedupe_for for job in jobs]),
        _some([job.run_at for job in jobs]),
        _some([job.delay for job in jobs]),
        _some([job.max_queue_time for job in jobs]),
        _some([job.deadline for job in jobs]),
        _some([job.source_id for job in jobs]),
        _some([job.staged_at for job in jobs]),
        _some([job.callback for job in jobs]),
    ]


def limit_columns(jobs: Sequence[NewJob]) -> list[Column]:
    """Give the names and the keys of limits, which only the statement for limited jobs takes, behind all others."""
    return [
        _some([_array(tuple(limit.limit for limit in job.limits)) if job.limits else None for job in jobs]),
        _some([_array(tuple(limit.key for limit in job.limits)) if job.limits else None for job in jobs]),
    ]


def _same(values: Sequence[object]) -> Column:
    """Give one value for all where they are all one."""
    return list(values[:1] if values.count(values[0]) == len(values) else values)


def _some(values: Sequence[object]) -> Column:
    """Give nothing where all are null."""
    return [] if values.count(None) == len(values) else list(values)


def _milliseconds(timeout: timedelta) -> int:
    return max(1, round(timeout.total_seconds() * 1000))


def _signed(fingerprint: int) -> int:
    """Fold any integer into the 64 bits of a bigint."""
    return (fingerprint + 2**63) % 2**64 - 2**63


def _array(values: tuple[str, ...]) -> str:
    """Give an array's literal: unnesting an array of arrays would run them together."""
    escaped = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return "{" + ",".join(f'"{value}"' for value in escaped) + "}"
