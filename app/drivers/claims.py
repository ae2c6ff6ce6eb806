"""What a worker asks for when it asks for jobs. Read by the verbs that claim, with slots or without."""

from __future__ import annotations

from dataclasses import dataclass

from ..domain.job import WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueShare:
    """A queue a worker serves and how many of its jobs it has room for now."""

    queue: str
    room: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """What a worker can start now. `names` are the job types it knows; other names are left ready.

    `room` bounds the claim as a whole, each share bounds its queue. Without `alone_ok`, jobs that must run alone in
    their worker (`ClaimedJob.must_run_alone`) are left ready.
    """

    worker_id: WorkerId
    shares: tuple[QueueShare, ...]
    names: frozenset[str]
    room: int
    alone_ok: bool = True
