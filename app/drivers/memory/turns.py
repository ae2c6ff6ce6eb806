"""Turns: the order of the gate where queues are fair, and jobs that are lined up; the readable reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from heapq import merge

from ...domain.job import JobId
from ...domain.reason import MOST_AHEAD
from ...domain.turns import Lined, Placed, TurnFacts, in_turns
from .rows import Ready
from .store import Place, Store


def gate_in_turns(store: Store, queues: Iterable[str], fits: Callable[[JobId], bool]) -> Iterator[JobId]:
    """Walk the gates of queues as one, and give what `fits`, that of fair queues in the places of its turns."""
    return (job_id for _, _, job_id in merge(*(_line(store, queue, fits) for queue in queues)))


def line_up(store: Store, batch: int | None = None) -> int:
    """Line up what is ready in fair queues, and not parked for another reason; for a caller in a statement."""
    out_of_line = [
        (job_id, token)
        for job_id, token in store.tokens.items()
        if isinstance(token, Ready) and _is_out_of_line(store, job_id)
    ]
    for job_id, token in out_of_line[:batch]:
        store.line_up(job_id, token)
    return len(out_of_line[:batch])


def must_line_up(store: Store) -> bool:
    """Say whether `line_up` would find any; for a caller in a statement."""
    return any(isinstance(token, Ready) and _is_out_of_line(store, job_id) for job_id, token in store.tokens.items())


def count_starts(store: Store, begins: dict[tuple[str, str], float], started: Iterable[JobId]) -> None:
    """Move the turns of those whose jobs were let in; `begins` is when that was, as it stood before."""
    counts = Counter((store.queue_of(job_id), store.envelopes[job_id].job.tenant) for job_id in started)
    for (queue, tenant), starts in counts.items():
        store.turns.move(queue, tenant, begins[queue, tenant], starts)


def begins_of(store: Store, queues: Iterable[str]) -> dict[tuple[str, str], float]:
    """Give when the next start of each tenant with lined jobs begins."""
    found = {}
    for queue in queues:
        time = store.turns.time(queue)
        for _, _, job_id in store.gate(queue):
            tenant = store.envelopes[job_id].job.tenant
            found[queue, tenant] = store.turns.turn(queue, tenant).begins(time)
    return found


def turn_of(store: Store, job_id: JobId) -> tuple[TurnFacts, int] | None:
    """Give whose turn a job waits for, and how many begin before it; None where it waits for none, or is parked."""
    if job_id not in store.turns.lined or job_id in store.limits.parked:
        return None
    queue = store.queue_of(job_id)
    order = [one.job for one in in_turns(_lined(store, queue, lambda other: other not in store.limits.parked))]
    before = order[: order.index(job_id)]
    tenant = store.envelopes[job_id].job.tenant
    tenants = {store.envelopes[other].job.tenant for other in order}
    own = sum(store.envelopes[other].job.tenant == tenant for other in before)
    weight = store.turns.turn(queue, tenant).share
    facts = TurnFacts(tenant=tenant, weight=weight, tenants=len(tenants), own_ahead=min(own, MOST_AHEAD))
    return facts, min(len(before), MOST_AHEAD)


def _is_out_of_line(store: Store, job_id: JobId) -> bool:
    is_waiting = job_id in store.turns.lined or job_id in store.limits.parked
    return not is_waiting and store.queue_of(job_id) in store.turns.fair


def _line(store: Store, queue: str, fits: Callable[[JobId], bool]) -> Iterator[Place]:
    plain = (place for place in store.gate(queue) if place[2] not in store.turns.lined and fits(place[2]))
    return merge(plain, map(_place, in_turns(_lined(store, queue, fits))))


def _lined(store: Store, queue: str, fits: Callable[[JobId], bool]) -> Iterator[Lined[JobId]]:
    time = store.turns.time(queue)
    for rank, seq, job_id in store.gate(queue):
        if job_id in store.turns.lined and fits(job_id):
            tenant = store.envelopes[job_id].job.tenant
            turn = store.turns.turn(queue, tenant)
            yield Lined((rank, seq), tenant, turn.begins(time), turn.share, job_id)


def _place(one: Placed[JobId]) -> Place:
    return *one.place, one.job
