"""What `ctx.step.call` needs of a job type, and what a call may say besides the payload.

Job handles are such things; they live above this layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeAlias, TypedDict, TypeVar

from ..domain.job import ClaimedJob, NewJob, OnConflict

PayloadT_contra = TypeVar("PayloadT_contra", contravariant=True)
ResultT_co = TypeVar("ResultT_co", covariant=True)
MetaValue: TypeAlias = str | int | float | bool | None


class SharedOptions(TypedDict, total=False):
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
    traceparent: str | None
    enqueued_by: str | None
    tenant: str | None


class CallOptions(SharedOptions, total=False):
    """Options of a child job. Its key wins over the one the job type declares."""

    idempotency_key: str | None


class Callee(Protocol[PayloadT_contra, ResultT_co]):
    """A job type that can be called."""

    @property
    def name(self) -> str:
        """Give its name."""
        ...

    def child(self, payload: PayloadT_contra, parent: ClaimedJob, options: Mapping[str, Any]) -> NewJob:
        """Admit a job of this type as a child of another; nothing is stored. Raises what admission raises."""
        ...

    def result_of(self, text: str | None) -> ResultT_co:
        """Give the result of a job of this type from its stored text.

        Raises:
            UndecodableError: it does not fit the return annotation.
        """
        ...
