"""What is answered about limits of job types: what is in force, and who holds what."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from .shown import Shown


class LimitInForce(Shown):
    """A limit of a job type; `n` is None when nothing is held back any more, `declared` what the code says.

    With `per_ms` it is a rate: so many in this time. `waiting` jobs are under it.
    """

    name: str
    limit: str
    n: int | None = None
    declared: int | None = None
    per_ms: int | None = None
    set_by: str | None = None
    held: int
    waiting: int


class Slot(Shown):
    """A slot that a job holds; not `is_open` once its attempt is closed and its body runs on."""

    name: str
    limit: str
    key: str
    job_id: UUID
    claim_no: int
    worker_id: str
    tenant: str
    taken_at: datetime
    is_open: bool


class Released(Shown):
    """The slots that were taken back."""

    items: tuple[Slot, ...]
