"""F6: a worker frozen for two leases wakes when another has finished its jobs, and changes nothing."""

from __future__ import annotations

import random

import pytest

from app.domain.outcome import OutcomeKind
from app.domain.state import State
from tests.faults.history import check
from tests.support.processes import LEASE, SLACK, Fleet, eventually, report
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(90)]

TOLD_SECONDS = 0.2


async def test_a_worker_that_wakes_after_its_lease_changes_nothing(
    fleet: Fleet, store: Store, dice: random.Random
) -> None:
    """P24 as well: its first renewal comes too late and is refused; its bodies are told, and only the ledger knows."""
    zombie = fleet.worker("--concurrency", "4")
    await zombie.ready()
    # Some stop when told, some go on and return, some find their gate open the moment they wake.
    kinds = [("faults.hold", True), ("faults.hold_sync", True), ("faults.hold", False), ("faults.hold_sync", False)]
    held = [
        await store.enqueue(name, {"gate": "told" if heed else "woken", "epochs": 1, "heed": heed})
        for name, heed in dice.sample(kinds, 4)
    ]
    await eventually(lambda: len(fleet.ledger.events("effect")) == 4, "four bodies run")
    zombie.stop()
    frozen = fleet.ledger.record("stop")
    other = fleet.worker()
    views = await store.all_until(held)
    fleet.ledger.open("woken")
    lost = 2 * LEASE - (fleet.ledger.record("finished") - frozen)
    await eventually(lambda: fleet.ledger.record("wait") - frozen >= 2 * LEASE, f"two leases pass, {lost:.1f} s to go")
    woken = fleet.ledger.record("cont")
    zombie.resume()
    await eventually(lambda: len(zombie.said("lease.lost")) == 4, "the zombie gives its four runs up")
    told = [event.mono - woken for event in fleet.ledger.events("told") if event.pid == zombie.pid]
    report(f"told {max(told):.3f} s after it woke; promised {TOLD_SECONDS:g} s")
    assert len(told) >= 2
    assert max(told) <= TOLD_SECONDS * SLACK
    await eventually(lambda: zombie.said("worker.lease_over") != [], "the zombie knows")
    after = [await store.view(job_id) for job_id in held]
    assert after == views
    for view in after:
        assert view.state is State.DONE
        assert (view.counters.crashes, view.counters.attempt, view.counters.claim_no) == (1, 1, 2)
        assert view.result == '{"claim_no":2,"attempt":1}'
        assert await store.outcomes(view.id) == [OutcomeKind.CRASHED, OutcomeKind.COMPLETED]
    assert zombie.said("attempt.completed") == []
    other.terminate()
    assert await other.gone() == 0
    # Under a new id the zombie is a worker like any other.
    assert (await store.until(await store.enqueue("faults.hold"))).state is State.DONE
    mine = {str(job_id) for job_id in held}
    ends = [e for e in fleet.ledger.events("effect") if e.pid == zombie.pid and e.job in mine]
    assert len(ends) == 8, "the zombie's bodies are in the ledger, begun and ended"
    await check(store, fleet.ledger.events(), acked=held)
