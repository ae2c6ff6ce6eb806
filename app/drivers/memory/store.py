"""The rows of the memory driver and the one way a token moves.

Owns the lock, the clock and the tables. Verbs run inside `statement()`: one lock, one instant, like one statement on a
database. A thread lock, because the heartbeat comes from a thread of its own; nothing awaits inside it.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

from ...domain.audit import AuditEntry, AuditView
from ...domain.bulk import BulkId
from ...domain.clock import Clock
from ...domain.errors import DriverUnavailable, Internal
from ...domain.flow import Tally
from ...domain.job import LANE_NEW, LANE_RESUMED, ClaimToken, Counters, JobId, WorkerId, rank_of
from ...domain.ledger import FIRST_KEPT, LAST_KEPT
from ...domain.queue import Pause
from ...domain.request_claim import RequestClaim, RequestId
from ...domain.retention import Chore
from ...domain.snapshot import AttemptView, JobTypeDoc
from ...domain.state import State, is_legal
from ...domain.webhook import DeliveryId
from ..flow import BATCHES_KNOWN
from ..protocol import Wake
from .bell import Bell
from .bulk_rows import Operation
from .limit_rows import Limits
from .request_rows import Asked, refuse_lost
from .rows import (
    Drained,
    Envelope,
    Finished,
    Key,
    Pin,
    Ready,
    Rest,
    Running,
    Source,
    SourceId,
    Token,
    Waiting,
    Worker,
    state_of,
)
from .run_rows import Runs
from .turn_rows import Turns
from .webhook_rows import Telling, telling_of

# Where a ready job is in its queue: `(rank, seq, id)`.
Place: TypeAlias = tuple[int, int, JobId]


class Store:
    """Everything a memory driver knows."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.bell = Bell()
        self.is_closed = False
        self.envelopes: dict[JobId, Envelope] = {}
        self.tokens: dict[JobId, Token] = {}
        self.keys: dict[UUID, Key] = {}
        self.sources: dict[SourceId, Source] = {}
        self.ledger: defaultdict[JobId, list[AttemptView]] = defaultdict(list)
        self.workers: dict[WorkerId, Worker] = {}
        self.drains: dict[WorkerId, Drained] = {}
        self.job_types: dict[str, JobTypeDoc] = {}
        self.pauses: dict[str, Pause] = {}
        self.concurrency: dict[str, int] = {}
        self.max_depth: dict[str, int] = {}
        self.turns = Turns()
        self.audit: list[AuditView] = []
        self.requests: dict[RequestId, Asked] = {}
        self.flow: dict[tuple[int, datetime, str, str], Tally] = {}
        self.flow_added = deque[UUID](maxlen=BATCHES_KNOWN)
        self.runs = Runs()
        self.rests: dict[Chore, Rest] = {}
        self.bulk: dict[BulkId, Operation] = {}
        self.limits = Limits()
        self.deliveries: dict[DeliveryId, Telling] = {}
        self._lanes: defaultdict[str, list[Place]] = defaultdict(list)
        self._gates: defaultdict[str, list[Place]] = defaultdict(list)
        self._lock = threading.Lock()
        self._now = clock.now()
        self._last_seq = 0
        self._last_worker = 0

    @contextmanager
    def statement(self, audit: AuditEntry | None = None, *, claim: RequestClaim | None = None) -> Iterator[datetime]:
        """Hold the lock and give the one instant everything in this statement happens at.

        Wake-ups ring after the lock is given back, as after a commit. `audit`, `claim`: the request that asks for what
        the statement does, which marks it.

        Raises:
            DriverUnavailable: the driver is closed.
            IdempotencyInFlight: somebody else does the request by now.
        """
        with self._lock:
            if self.is_closed:
                raise DriverUnavailable("the memory driver is closed", fix="open the driver before using it")
            self._now = self._clock.now()
            refuse_lost(self.requests, claim if audit is None else audit.request)
            yield self._now
            wakes = self.bell.take()
        self.bell.ring(wakes)

    # --- moving tokens

    def place(self, job_id: JobId, token: Token) -> None:
        """Move a job to where `token` says; every move of every verb comes through here.

        A job that ends frees its key in the same statement, unless the key's window lasts, and leaves a delivery to who
        asked to be told.

        Raises:
            Internal: the move is not in the table of `domain.state`.
        """
        before = self.tokens.get(job_id)
        source = None if before is None else state_of(before)
        target = state_of(token)
        if not is_legal(source, target):
            raise Internal(f"job {job_id} cannot go from {source} to {target}", fix="report this as a bug")
        if isinstance(before, Ready):
            self._leave_queue(job_id, before)
        self.tokens[job_id] = token
        if isinstance(token, Ready):
            if self._is_for_gate(job_id) and self.queue_of(job_id) in self.turns.fair:
                self.turns.lined.add(job_id)
            insort(self._lane_of(job_id), (token.rank, token.seq, job_id))
            self.bell.add(Wake.READY)
        if isinstance(before, Running) and self.queue_of(job_id) in self.concurrency:
            self.bell.add(Wake.READY)  # for those that wait for its place
        if isinstance(token, Waiting):
            self.bell.add(Wake.DELAYED)
        if isinstance(token, Finished):
            self.free_key(job_id, token.finished_at)
            if (telling := telling_of(job_id, self.envelopes[job_id], token, token.finished_at)) is not None:
                self.deliveries[telling.id] = telling
            self.bell.add(Wake.FINISHED)

    def make_ready(self, job_id: JobId, counters: Counters, *, rank: int, pin: Pin | None = None) -> None:
        """Let a job wait for a worker, last in the place `rank` gives it."""
        self.place(job_id, Ready(counters=counters, rank=rank, seq=self.next_seq(), since=self._now, pin=pin))

    def rerank(self, job_id: JobId, ready: Ready, rank: int) -> None:
        """Let a ready job wait in another place, where it is the last; that is no move of its token."""
        parked, is_lined = self.limits.parked.get(job_id), job_id in self.turns.lined
        self._leave_queue(job_id, ready)
        if is_lined:
            self.turns.lined.add(job_id)
        again = replace(ready, rank=rank, seq=self.next_seq())
        self.tokens[job_id] = again
        insort(self._lane_of(job_id), (again.rank, again.seq, job_id))
        if parked is not None:
            self.limits.parked[job_id] = parked
        self.bell.add(Wake.READY)

    def mark(self, job_id: JobId) -> None:
        """Say of a token that begins anew whether it is for the gate: it is where its queue is fair by now."""
        (self.turns.marked.add if self.queue_of(job_id) in self.turns.fair else self.turns.marked.discard)(job_id)

    def line_up(self, job_id: JobId, ready: Ready) -> None:
        """Let a ready job of a fair queue wait for its turn, where it is among its tenant's; no move of its token."""
        self._leave_queue(job_id, ready)
        self.turns.marked.add(job_id)
        self.turns.lined.add(job_id)
        insort(self._lane_of(job_id), (ready.rank, ready.seq, job_id))

    def resume(self, job_id: JobId, counters: Counters) -> None:
        """Let a job that had begun wait for a worker, before new work of its priority."""
        self.make_ready(job_id, counters, rank=self.rank(job_id, LANE_RESUMED))

    def forget(self, job_id: JobId) -> None:
        """Delete a finished job, its ledger and its run; its key within its window and its source stay."""
        self.runs.clear(job_id, self.envelopes[job_id].run_id)
        del self.envelopes[job_id], self.tokens[job_id]
        self.ledger.pop(job_id, None)
        self.turns.marked.discard(job_id)

    def record(self, job_id: JobId, row: AttemptView) -> None:
        """Append to a job's ledger; of a long one the first and the last rows are kept."""
        rows = self.ledger[job_id]
        rows.append(row)
        if len(rows) > FIRST_KEPT + LAST_KEPT:
            del rows[FIRST_KEPT]

    # --- looking

    def queue(self, name: str) -> Sequence[Place]:
        """Give a queue's ready jobs in claim order, those that are limited or wait for their turn left out."""
        return self._lanes.get(name, ())

    def gate(self, name: str) -> Sequence[Place]:
        """Give a queue's ready jobs that are limited or wait for their turn, in claim order: no claim sees them."""
        return self._gates.get(name, ())

    def is_gated(self, job_id: JobId) -> bool:
        """Say whether a job waits in the gate."""
        return isinstance(self.tokens[job_id], Ready) and self._is_for_gate(job_id)

    def queue_of(self, job_id: JobId) -> str:
        """Give the queue a job belongs to."""
        return self.envelopes[job_id].job.queue

    def has_tenant(self, job_id: JobId, tenant: str) -> bool:
        """Say whether a job is there and belongs to a tenant."""
        return job_id in self.envelopes and self.envelopes[job_id].job.tenant == tenant

    def running_of(self, queue: str) -> int:
        """Count a queue's claims, whoever has them."""
        return sum(self.queue_of(job) == queue for job, _ in self.running())

    def depth_of(self, queue: str) -> int:
        """Count a queue's ready and delayed jobs."""
        return sum(
            isinstance(token, Ready | Waiting) and self.queue_of(job) == queue for job, token in self.tokens.items()
        )

    def pause_of(self, queue: str, now: datetime) -> Pause | None:
        """Give a queue's pause unless it is over."""
        pause = self.pauses.get(queue)
        return None if pause is None or pause.is_over(now) else pause

    def rank(self, job_id: JobId, lane: int = LANE_NEW) -> int:
        """Give a job's place in its queue's order for a lane."""
        return rank_of(self.envelopes[job_id].job.priority, lane)

    def state(self, job_id: JobId) -> State:
        """Give a job's bucket."""
        return state_of(self.tokens[job_id])

    def has_ended(self, job_id: JobId) -> bool:
        """Say whether a job is terminal; an absent one has not ended now."""
        return isinstance(self.tokens.get(job_id), Finished)

    def fenced(self, token: ClaimToken, now: datetime) -> Running | None:
        """Give the claim a token names if its worker may still write for it, None when it is gone."""
        worker = self.workers.get(token.worker_id)
        if worker is None or not worker.is_alive(now):
            return None
        return self.claim_named(token)

    def claim_named(self, token: ClaimToken) -> Running | None:
        """Give the claim a token names, whatever its worker's lease says."""
        match self.tokens.get(token.job_id):
            case Running() as running if running.is_named_by(token):
                return running
            case _:
                return None

    def claims_of(self, worker_id: WorkerId) -> list[tuple[JobId, Running]]:
        """Give what a worker holds, by job id."""
        return [(job_id, running) for job_id, running in self.running() if running.worker_id == worker_id]

    def running(self) -> list[tuple[JobId, Running]]:
        """Give every claim, by job id."""
        return sorted(
            ((job_id, token) for job_id, token in self.tokens.items() if isinstance(token, Running)),
            key=lambda claim: claim[0],
        )

    def next_seq(self) -> int:
        """Give a number larger than every one before: the order of becoming ready, by which claims are fenced, too."""
        self._last_seq += 1
        return self._last_seq

    def new_worker_id(self) -> WorkerId:
        """Give an id no worker had before."""
        self._last_worker += 1
        return WorkerId(self._last_worker)

    def _leave_queue(self, job_id: JobId, token: Ready) -> None:
        lane = self._lane_of(job_id)
        del lane[bisect_left(lane, (token.rank, token.seq, job_id))]
        self.limits.parked.pop(job_id, None)
        self.turns.lined.discard(job_id)

    def _lane_of(self, job_id: JobId) -> list[Place]:
        return (self._gates if self._is_for_gate(job_id) else self._lanes)[self.queue_of(job_id)]

    def _is_for_gate(self, job_id: JobId) -> bool:
        return bool(self.envelopes[job_id].job.limits) or job_id in self.turns.marked

    def free_key(self, job_id: JobId, now: datetime) -> None:
        """Give back the key of a job that ends, unless its window lasts."""
        key_hash = self.envelopes[job_id].job.key_hash
        key = None if key_hash is None else self.keys.get(key_hash)
        if key_hash is None or key is None:
            return
        ended = replace(key, is_ended=True)
        if ended.is_taken(now):
            self.keys[key_hash] = ended
        else:
            del self.keys[key_hash]
