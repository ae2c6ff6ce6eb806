"""What an enqueue may say about one job besides its payload: one list for every way to enqueue from code.

Called by handles and contexts; values are checked by admission.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import Literal, TypeAlias, TypedDict
from uuid import UUID

from ..domain.job import OnConflict

Mode = Literal["auto", "required"]
MetaValue: TypeAlias = str | int | float | bool | None


class _SharedOptions(TypedDict, total=False):
    """Options that may hold for many jobs alike, wherever they go.

    `delay` counts from the enqueue and excludes `run_at` (aware). `timeout` and `max_attempts` may only be lower than
    the job type's.
    """

    delay: timedelta | None
    run_at: datetime | None
    queue: str | None
    priority: int | None
    max_attempts: int | None
    timeout: timedelta | None
    on_conflict: OnConflict | None
    dedupe_for: timedelta | None
    tags: Sequence[str] | AbstractSet[str] | None
    meta: Mapping[str, MetaValue] | None
    parent_id: UUID | str | None
    traceparent: str | None
    enqueued_by: str | None
    tenant: str | None


class ManyOptions(_SharedOptions, total=False):
    """Options of jobs that are published at once."""

    session: None
    mode: Literal["auto"]


class EnqueueOptions(ManyOptions, total=False):
    """Options of one job that is published at once. Its key wins over the one the job type declares."""

    idempotency_key: str | None


class StageManyOptions(_SharedOptions, total=False):
    """Options of jobs that are staged in the caller's transaction: that of `session`, or the current one.

    `mode="required"` refuses to publish at once where there is none.
    """

    session: object
    mode: Mode


class StageOptions(StageManyOptions, total=False):
    """Options of one job that is staged."""

    idempotency_key: str | None
