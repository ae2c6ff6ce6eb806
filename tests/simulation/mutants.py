"""What is broken on purpose, one at a time: a simulation that does not notice is itself at fault.

Each change is put in place for the length of a test, on the class or module where the rule lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pytest

from app.domain.job import ClaimToken, Counters, JobId, NewJob, WorkerId
from app.domain.verdict import Reason
from app.drivers.memory import cancel, enqueue, heartbeat, limits, reap, sweep, waking, workers
from app.drivers.memory.limit_rows import Limits
from app.drivers.memory.rows import Key, Running
from app.drivers.memory.store import Store
from app.lifecycle.drain import DrainBudget, DrainNotice
from app.lifecycle.role import Role
from app.steps.history import History
from app.worker import run as run_module
from app.worker.claim_loop import ClaimLoop
from app.worker.heartbeat import Heartbeat
from app.worker.lease import Lease
from app.worker.session import Session

Patch = pytest.MonkeyPatch


class Mutant(NamedTuple):
    """One change and what it is."""

    name: str
    put: Callable[[Patch], None]


def _settle_without_fence(patch: Patch) -> None:
    def fenced(store: Store, token: ClaimToken, _now: datetime) -> Running | None:
        found = store.tokens.get(token.job_id)
        return found if isinstance(found, Running) else None

    patch.setattr(Store, "fenced", fenced)


def _claim_along_while_draining(patch: Patch) -> None:
    offer = ClaimLoop.offer

    def offers(loop: ClaimLoop, queues: Sequence[str]) -> Any:
        leaving, loop._leaving = loop._leaving, asyncio.Event()
        try:
            return offer(loop, queues)
        finally:
            loop._leaving = leaving

    patch.setattr(ClaimLoop, "offer", offers)


def _count_interruptions(patch: Patch) -> None:
    patch.setattr(Counters, "interrupted", lambda own: replace(own, interrupts=own.interrupts + 1))


def _forget_crashes(patch: Patch) -> None:
    patch.setattr(Counters, "crashed", lambda own, **_: own.uncounted())


def _blame_neighbours(patch: Patch) -> None:
    crashed = Counters.crashed
    patch.setattr(
        Counters, "crashed", lambda own, *, max_crashes, **_: crashed(own, max_crashes=max_crashes, ran_alone=True)
    )


def _keep_lost_claims(patch: Patch) -> None:
    patch.setattr(workers, "reconcile", lambda *_args, **_options: 0)


def _hand_back_what_came_since(patch: Patch) -> None:
    reconcile = workers.reconcile

    def reconciles(store: Store, worker: WorkerId, held: Sequence[ClaimToken], *, before: object) -> int:
        del before
        return reconcile(store, worker, held, before=None)

    patch.setattr(workers, "reconcile", reconciles)


def _cancel_in_words_only(patch: Patch) -> None:
    patch.setattr(cancel, "_revoke", lambda *_: None)


def _ignore_late_bind(patch: Patch) -> None:
    drain = Role.drain

    def drains(role: Role, notice: DrainNotice) -> None:
        if role._life is not None and not role._life.is_leaving.is_set():
            drain(role, notice)

    patch.setattr(Role, "drain", drains)


def _extend_deadline(patch: Patch) -> None:
    def bind(budget: DrainBudget, notice: DrainNotice) -> None:
        longer = notice.deadline + 5.0
        budget.first = budget.first or notice
        budget.deadline, budget.cancel_at, budget.abandon_at = longer, longer - 0.2, longer - 0.1
        budget._tightened.set()

    patch.setattr(DrainBudget, "bind", bind)


def _read_drain_off_the_exception(patch: Patch) -> None:
    verdict = run_module.verdict  # type: ignore[attr-defined] # where the worker looks it up

    def judges(*, first: Reason | None, ended: Any, **rest: Any) -> Any:
        code = getattr(getattr(ended, "error", None), "code", None)
        is_told = first is not Reason.DRAIN or code == "ABORTED"
        return verdict(first=first if is_told else None, ended=ended, **rest)

    patch.setattr(run_module, "verdict", judges)


def _tell_nobody(patch: Patch) -> None:
    patch.setattr(Session, "told", lambda *_: None)


def _stop_the_heartbeat_at_accept(patch: Patch) -> None:
    told = Session.told

    def tells(session: Session, notice: DrainNotice) -> None:
        told(session, notice)
        session._heartbeat._is_abandoned = True

    patch.setattr(Session, "told", tells)


def _abandon_without_a_mark(patch: Patch) -> None:
    async def abandon(*_: object) -> int:
        return 0

    patch.setattr(heartbeat.MemoryHeartbeat, "abandon", abandon)


def _reap_the_living(patch: Patch) -> None:
    def is_orphan(store: Store, running: Running) -> bool:
        return running.claimed_at + timedelta(seconds=0.5) < store._now

    patch.setattr(reap, "_is_orphan", is_orphan)


def _reap_nobody(patch: Patch) -> None:
    patch.setattr(reap, "_close_expired", lambda *_: None)


def _judge_the_lease_from_the_reply(patch: Patch) -> None:
    def renewed(lease: Lease, _sent: float) -> None:
        lease._since = lease._clock()

    patch.setattr(Lease, "renewed", renewed)


def _never_judge_the_lease(patch: Patch) -> None:
    patch.setattr(Heartbeat, "_over", lambda *_: None)
    patch.setattr(Lease, "is_held", property(lambda lease: not lease._is_over))


def _give_keys_away(patch: Patch) -> None:
    patch.setattr(Key, "is_taken", lambda *_: False)


def _forget_sources(patch: Patch) -> None:
    keep = enqueue._Draft._keep

    def keeps(draft: Any, job: NewJob) -> None:
        keep(draft, replace(job, source_id=None))

    patch.setattr(enqueue._Draft, "_keep", keeps)


def _expire_what_has_begun(patch: Patch) -> None:
    over = sweep._over

    def is_over(store: Store, job_id: JobId, now: datetime) -> Any:
        rows, store.ledger = store.ledger, type(store.ledger)(list)
        try:
            return over(store, job_id, now)
        finally:
            store.ledger = rows

    patch.setattr(sweep, "_over", is_over)


def _replay_nothing(patch: Patch) -> None:
    patch.setattr(History, "at", lambda _history, _place, _name, _kind: (None, None))


def _wake_without_a_step(patch: Patch) -> None:
    patch.setattr(waking, "record_end", lambda *_args, **_kwargs: None)


def _lack_nothing(patch: Patch) -> None:
    patch.setattr(Limits, "lacks", lambda _limits, _name, _limit, _now: False)


def _free_no_slots_of_the_gone(patch: Patch) -> None:
    patch.setattr(limits, "is_orphan", lambda _store, _slot: False)


MUTANTS = (
    Mutant("a limit holds nobody", _lack_nothing),
    Mutant("the slots of the gone are nobody's", _free_no_slots_of_the_gone),
    Mutant("a settle is not fenced", _settle_without_fence),
    Mutant("a settle claims along while draining", _claim_along_while_draining),
    Mutant("an interruption counts as an attempt", _count_interruptions),
    Mutant("a crash counts as nothing", _forget_crashes),
    Mutant("a job is dead for its neighbour's crash", _blame_neighbours),
    Mutant("a claim whose reply was lost is kept", _keep_lost_claims),
    Mutant("a late reconciliation takes what was claimed since", _hand_back_what_came_since),
    Mutant("a cancel ends nothing", _cancel_in_words_only),
    Mutant("a deadline that lands in a stop is ignored", _ignore_late_bind),
    Mutant("a drain may last longer", _extend_deadline),
    Mutant("a drain is read off the exception", _read_drain_off_the_exception),
    Mutant("nobody is told of a drain", _tell_nobody),
    Mutant("the heartbeat stops with the drain", _stop_the_heartbeat_at_accept),
    Mutant("what is abandoned is not marked", _abandon_without_a_mark),
    Mutant("the claims of the living are taken over", _reap_the_living),
    Mutant("the claims of the dead are not taken over", _reap_nobody),
    Mutant("a lease is judged from the reply", _judge_the_lease_from_the_reply),
    Mutant("a worker never judges its lease", _never_judge_the_lease),
    Mutant("a key is anybody's", _give_keys_away),
    Mutant("a source is forgotten", _forget_sources),
    Mutant("what has begun can expire", _expire_what_has_begun),
    Mutant("a recorded step is done again", _replay_nothing),
    Mutant("a wait that is over leaves no step", _wake_without_a_step),
)
