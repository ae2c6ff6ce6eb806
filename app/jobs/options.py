"""What an enqueue may say about one job besides its payload: one list for every way to enqueue from code.

Called by handles and contexts; values are checked by admission. What a call of a child may say too is in
`steps.callee`.
"""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from ..domain.webhook import Callback
from ..steps.callee import SharedOptions

Mode = Literal["auto", "required"]


class _SharedOptions(SharedOptions, total=False):
    """Options that may hold for many jobs alike, wherever they go."""

    parent_id: UUID | str | None
    callback: Callback | None


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
