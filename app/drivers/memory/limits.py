"""Limits: jobs in the gate are admitted with their slots, slots are given back, and both are shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from ...domain.audit import UNCHANGED, AuditEntry
from ...domain.errors import JobStateConflict, NotFound
from ...domain.job import ClaimedJob, ClaimToken, JobId, LimitKey, WorkerId
from ...domain.limit import (
    HOLDERS_SHOWN,
    RATE,
    Admitted,
    JobLimits,
    LimitFacts,
    SlotQuery,
    SlotView,
    StoredLimit,
    reason_of,
)
from ...domain.state import State
from ..protocol import ClaimRequest, Wake
from .audit import keep
from .cancel import envelope_for
from .claim import fits, open_claim, open_room, refuse_empty
from .limit_rows import Slot
from .limit_versions import choose_anew
from .store import Store
from .turns import begins_of, count_starts, gate_in_turns


def admit(store: Store, request: ClaimRequest) -> Admitted:
    """Take jobs out of the gate; see `LimitStore.admit`.

    Raises:
        QueuesEmpty: the request names no queue.
    """
    refuse_empty(request)
    with store.statement() as now:
        worker = store.workers.get(request.worker_id)
        if worker is None or not worker.is_alive(now):
            return Admitted()
        room = open_room(store, request, now)
        taken: list[ClaimedJob] = []
        blocked: list[datetime] = []
        version, begins = worker.about.code_version, begins_of(store, room)
        lined = {job_id for queue in room for _, _, job_id in store.gate(queue) if job_id in store.turns.lined}

        def may_start(job_id: JobId) -> bool:
            return fits(store, job_id, request.names, version, alone_ok=request.alone_ok)

        for job_id in list(gate_in_turns(store, room, may_start)):
            job = store.envelopes[job_id].job
            lacking = _lacking(store, job_id, now)
            if lacking is not None:
                store.limits.parked[job_id] = reason_of(lacking)
                next_at = _next_at(store, job.name, lacking, now)
                blocked += [] if next_at is None else [next_at]
            elif len(taken) < request.room and room[job.queue] > 0:
                room[job.queue] -= 1
                taken.append(_admit(store, job_id, request.worker_id, now))
        count_starts(store, begins, (one.token.job_id for one in taken if one.token.job_id in lined))
        next_in = min(blocked) - now if blocked else None
        return Admitted(jobs=tuple(taken), is_full=len(taken) >= request.room, next_in=next_in)


def free_slots(store: Store, tokens: Sequence[ClaimToken]) -> int:
    """Give back the slots of claims; see `LimitStore.free_slots`."""
    with store.statement():
        return _free(store, lambda slot: slot.token in tokens)


def return_slots(store: Store, worker_id: WorkerId, held: Sequence[ClaimToken], *, before: datetime) -> int:
    """Give back what a worker does not know of; see `LimitStore.return_slots`."""
    with store.statement():
        return _free(
            store,
            lambda slot: slot.token.worker_id == worker_id and slot.token not in held and slot.taken_at < before,
        )


def sweep_slots(store: Store, batch: int) -> int:
    """Give back the slots of workers that are gone; see `LimitStore.sweep_slots`."""
    with store.statement() as now:
        orphans = [slot for slot in store.limits.slots if is_orphan(store, slot)][:batch]
        choose_anew(store, now)
        store.limits.forget_unused(now)
        return _free(store, lambda slot: slot in orphans)


def is_orphan(store: Store, slot: Slot) -> bool:
    """Say whether a slot's worker is gone."""
    worker = store.workers.get(slot.token.worker_id)
    return worker is None or worker.lost_at is not None or worker.closed_at is not None


def slots(store: Store, query: SlotQuery) -> tuple[SlotView, ...]:
    """Give held slots; see `LimitStore.slots`."""
    with store.statement():
        shown = [
            view
            for view in sorted((_view(store, slot) for slot in store.limits.slots), key=_place)
            if query.name in {None, view.name}
            and query.tenant in {None, view.tenant}
            and (query.after is None or view.job_id > query.after)
        ]
        if len(shown) <= query.limit:
            return tuple(shown)
        last = shown[query.limit - 1].job_id
        return tuple(view for view in shown if view.job_id <= last)


def release_slots(
    store: Store, job_id: JobId, *, tenant: str | None, audit: AuditEntry | None = None
) -> tuple[SlotView, ...]:
    """Take back what closed attempts of a job hold; see `LimitStore.release_slots`.

    Raises:
        JobNotFound: the id is absent, or another tenant's.
        JobStateConflict: its attempt is open.
        NotFound: it holds nothing.
    """
    with store.statement(audit) as now:
        envelope_for(store, job_id, tenant)
        held = [slot for slot in store.limits.slots if slot.token.job_id == job_id]
        views = [(slot, _view(store, slot)) for slot in held]
        closed = [slot for slot, view in views if not view.is_open]
        if not closed:
            raise still_open(job_id, store.state(job_id)) if held else holds_none(job_id)
        _free(store, lambda slot: slot in closed)
        keep(store, None if audit is None else audit.came_to(audit.outcome, slots=len(closed)), now)
        return tuple(view for _, view in views if not view.is_open)


def stored_limits(store: Store, name: str | None) -> tuple[StoredLimit, ...]:
    """Give the limits in force; see `LimitStore.stored_limits`."""
    with store.statement():
        return tuple(_stored(store, *which) for which in sorted(store.limits.rules) if name in {None, which[0]})


def set_limit(
    store: Store, name: str, limit: str, n: int | None, *, by: str, audit: AuditEntry | None = None
) -> StoredLimit:
    """Put an operator's number in the declared one's place; see `LimitStore.set_limit`.

    Raises:
        NotFound: no job type has declared such a limit.
    """
    with store.statement(audit) as now:
        before = store.limits.rules.get((name, limit))
        if before is None or not store.limits.override(name, limit, n, by=by):
            raise no_limit(name, limit)
        store.bell.add(Wake.READY)
        if audit is not None:
            outcome = UNCHANGED if before.override == n else audit.outcome
            keep(store, audit.came_to(outcome, before=before.override, after=n), now)
        return _stored(store, name, limit)


def limits_of(store: Store, job_id: JobId, *, tenant: str | None) -> JobLimits | None:
    """Give what a job's limits are and how they stand; see `LimitStore.limits_of`."""
    with store.statement() as now:
        envelope = store.envelopes.get(job_id)
        if envelope is None or tenant not in {None, envelope.job.tenant}:
            return None
        return JobLimits(
            is_gated=store.is_gated(job_id),
            waits_for=store.limits.parked.get(job_id),
            limits=facts_of(store, job_id, now, tenant=tenant),
        )


def has_gated(store: Store) -> bool:
    """Say whether any job waits in the gate; for a caller in a statement."""
    return any(map(store.is_gated, store.tokens))


def has_orphans(store: Store) -> bool:
    """Say whether a worker that is gone holds a slot; for a caller in a statement."""
    return any(is_orphan(store, slot) for slot in store.limits.slots)


def admit_in(store: Store, now: datetime) -> timedelta | None:
    """Say when the next parked job may find that nothing is in its way any more; for a caller in a statement."""
    times: list[datetime] = []
    for job_id in store.limits.parked:
        lacking = _lacking(store, job_id, now)
        at = now if lacking is None else _next_at(store, store.envelopes[job_id].job.name, lacking, now)
        times += [] if at is None else [at]
    return min(times) - now if times else None


def still_open(job_id: JobId, state: State) -> JobStateConflict:
    """Give the answer for slots of an attempt that is open."""
    return JobStateConflict(
        f"the attempt of job {job_id} is open, and its slots are its own",
        fix="cancel the job; release what its body still holds if it does not end",
        state=state.value,
    )


def holds_none(job_id: JobId) -> NotFound:
    """Give the answer for a job without slots."""
    return NotFound(f"job {job_id} holds no slot", fix="look at the held slots again: it may have ended meanwhile")


def no_limit(name: str, limit: str) -> NotFound:
    """Give the answer for a limit that no job type has."""
    return NotFound(
        f"the job type {name!a} has no limit {limit!a}",
        fix="name one of its limits, or start a worker that declares it",
    )


def _free(store: Store, goes: Callable[[Slot], bool]) -> int:
    gone = [slot for slot in store.limits.slots if goes(slot)]
    store.limits.slots = [slot for slot in store.limits.slots if slot not in gone]
    if gone:
        store.bell.add(Wake.READY)
    return len(gone)


def _lacking(store: Store, job_id: JobId, now: datetime) -> LimitKey | None:
    """Give the first of a job's limits that does not let it start."""
    job = store.envelopes[job_id].job
    return next((limit for limit in job.limits if store.limits.lacks(job.name, limit, now)), None)


def _admit(store: Store, job_id: JobId, worker_id: WorkerId, now: datetime) -> ClaimedJob:
    job = store.envelopes[job_id].job
    claimed = open_claim(store, job_id, worker_id, now)
    store.limits.take(job.name, job.limits, claimed.token, now)
    return claimed._replace(has_slots=any(limit.limit != RATE for limit in job.limits))


def _next_at(store: Store, name: str, limit: LimitKey, now: datetime) -> datetime | None:
    """Give when a rate's key lets one start, None when that is no question of time, or now."""
    rule = store.limits.rule(name, limit)
    if rule is None or rule.per is None:
        return None
    bucket = store.limits.bucket(name, limit, rule, now)
    return None if bucket.has_one else bucket.next_at(rule)


def _view(store: Store, slot: Slot) -> SlotView:
    return SlotView(
        name=slot.name,
        limit=slot.limit.limit,
        key=slot.limit.key,
        job_id=slot.token.job_id,
        claim_no=slot.token.claim_no,
        worker_id=slot.token.worker_id,
        taken_at=slot.taken_at,
        is_open=store.claim_named(slot.token) is not None,
        tenant=store.envelopes[slot.token.job_id].job.tenant if slot.token.job_id in store.envelopes else "",
    )


def _place(view: SlotView) -> tuple[JobId, datetime, str]:
    return view.job_id, view.taken_at, view.limit


def _stored(store: Store, name: str, limit: str) -> StoredLimit:
    rule = store.limits.rules[name, limit]
    under = [job_id for job_id in store.tokens if store.is_gated(job_id)]
    jobs = [store.envelopes[job_id].job for job_id in under]
    return StoredLimit(
        name=name,
        limit=limit,
        n=rule.n,
        declared=rule.declared,
        per=rule.per,
        set_by=rule.set_by,
        held=sum((slot.name, slot.limit.limit) == (name, limit) for slot in store.limits.slots),
        waiting=sum(job.name == name and any(key.limit == limit for key in job.limits) for job in jobs),
    )


def facts_of(store: Store, job_id: JobId, now: datetime, *, tenant: str | None = None) -> tuple[LimitFacts, ...]:
    """Give what stands between a job and its limits, in a statement; a tenant is told of its own holders alone."""
    return tuple(_facts(store, job_id, limit, now, tenant) for limit in store.envelopes[job_id].job.limits)


def _facts(store: Store, job_id: JobId, limit: LimitKey, now: datetime, tenant: str | None) -> LimitFacts:
    name = store.envelopes[job_id].job.name
    rule = store.limits.rule(name, limit)
    held = store.limits.held(name, limit)
    shown = [slot.token.job_id for slot in held if tenant is None or store.has_tenant(slot.token.job_id, tenant)]
    return LimitFacts(
        limit=limit.limit,
        key=limit.key,
        n=None if rule is None else rule.n,
        per=None if rule is None else rule.per,
        held=len(held),
        holders=tuple(shown[:HOLDERS_SHOWN]),
        next_at=_next_at(store, name, limit, now),
        ahead=_ahead(store, job_id, limit) if store.is_gated(job_id) else None,
    )


def _ahead(store: Store, job_id: JobId, limit: LimitKey) -> int:
    """Count those of a job's own queue that wait for the same key and come first."""
    job = store.envelopes[job_id].job
    before = 0
    for _, _, other in store.gate(job.queue):
        if other == job_id:
            break
        one = store.envelopes[other].job
        before += one.name == job.name and limit in one.limits
    return before
