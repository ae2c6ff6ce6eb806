"""What an enqueue may say about one job besides its payload: one list for every way to enqueue from code.

Called by handles and contexts; values are checked by admission.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, TypeAlias, TypedDict

from ..domain.job import JobId, OnConflict

Mode = Literal["auto", "required"]
MetaValue: TypeAlias = str | int | float | bool | None


class ManyOptions(TypedDict, total=False):
    """Options that may hold for many jobs alike.

    `delay` counts from the enqueue and excludes `run_at` (aware). `timeout` and `max_attempts` may only be lower than
    the job type's. `session` and `mode="required"` ask for the caller's transaction.
    """

    delay: timedelta | None
    run_at: datetime | None
    queue: str | None
    priority: int | None
    max_attempts: int | None
    timeout: timedelta | None
    on_conflict: OnConflict | None
    dedupe_for: timedelta | None
    tags: Sequence[str]
    meta: Mapping[str, MetaValue] | None
    parent_id: JobId | None
    traceparent: str | None
    enqueued_by: str | None
    tenant: str | None
    session: object | None
    mode: Mode


class EnqueueOptions(ManyOptions, total=False):
    """Options of one job. Its key wins over the one the job type declares."""

    idempotency_key: str | None
