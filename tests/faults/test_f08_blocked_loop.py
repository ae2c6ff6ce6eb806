"""A body that blocks its worker's loop costs its neighbours no lease, and is ended when it is beyond help."""

from __future__ import annotations

import pytest

from app.domain.job import JobId
from app.domain.outcome import OutcomeKind
from app.domain.state import State
from tests.faults.history import check
from tests.support.processes import LEASE, Fleet, Service, eventually, report
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(90)]

LOOP_DIED = 75
BLOCKED = 1.5 * LEASE
STALL = 2.5
ALERTED = 1.0  # seconds of lag that an alert is on


async def _blocked(fleet: Fleet, store: Store, **variables: str) -> tuple[Service, list[JobId], JobId]:
    """Give a worker whose loop is blocked, what waits beside that, on the loop and in a thread, and what blocks it."""
    await store.publish()
    worker = await fleet.worker(OUTLAST_CONCURRENCY="3", **variables).ready()
    names = ("faults.hold", "faults.hold_sync")
    beside = [await store.enqueue(name, {"gate": "over", "epochs": 1}) for name in names]
    await eventually(lambda: len(fleet.ledger.events("effect")) == len(names), "the neighbours run")
    blocking = await store.enqueue("faults.block", {"gate": "over", "epochs": 1})
    await eventually(lambda: len(fleet.ledger.events("effect")) == len(names) + 1, "the loop is blocked")
    return worker, beside, blocking


async def test_a_loop_blocked_for_longer_than_a_lease_keeps_its_claims(fleet: Fleet, store: Store) -> None:
    """Another worker looks for what is lost all the while, and finds nothing."""
    worker, beside, blocking = await _blocked(fleet, store)
    since = fleet.ledger.record("blocked")
    other = await fleet.worker().ready()
    await eventually(lambda: fleet.ledger.record("wait") - since > BLOCKED, "it is blocked for longer than a lease")
    lag = (await worker.metrics())["outlast_loop_lag_seconds", ()]
    report(f"its lag is shown as {lag:.2f} s")
    assert lag > ALERTED
    fleet.ledger.open("over")
    jobs = [*beside, blocking]
    for view in await store.all_until(jobs):
        assert (view.state, view.counters.claim_no, view.counters.crashes) == (State.DONE, 1, 0)
        assert await store.outcomes(view.id) == [OutcomeKind.COMPLETED]
    await eventually(lambda: len(worker.said("attempt.completed")) == len(jobs), "it says so")
    (line,) = worker.said("attempt.completed", job_id=str(blocking))
    assert line["blocking"] is True
    said = worker.said("worker.loop_blocked")
    assert "pass_gate" in said[0]["blocked_at"], "the log shows where it hangs"
    assert not any(service.said("lease.lost") or service.said("worker.lease_over") for service in (worker, other))
    for service in (worker, other):
        service.terminate()
        assert await service.gone() == 0
    await check(store, fleet.ledger.events(), acked=jobs)


async def test_a_loop_that_is_beyond_help_ends_the_process_and_its_jobs_run_elsewhere(
    fleet: Fleet, store: Store
) -> None:
    worker, beside, blocking = await _blocked(fleet, store, OUTLAST_LOOP_STALL_SECONDS=str(STALL))
    other = await fleet.worker().ready()
    assert await worker.gone() == LOOP_DIED
    (last,) = worker.said("process.ended")
    assert (last["exit_code"], "no progress" in last["why"]) == (LOOP_DIED, True)
    assert "faults.block" in last["abandoned"]
    assert "pass_gate" in worker.said("worker.loop_blocked")[-1]["blocked_at"]
    jobs = [*beside, blocking]
    for view in await store.all_until(jobs):
        assert (view.state, view.counters.attempt, view.counters.crashes) == (State.DONE, 1, 1)
        assert await store.outcomes(view.id) == [OutcomeKind.CRASHED, OutcomeKind.COMPLETED]
    other.terminate()
    assert await other.gone() == 0
    await check(store, fleet.ledger.events(), acked=jobs)
