"""F1: a worker killed outright at entry, in its body, and after it returned but before its settle landed."""

from __future__ import annotations

import random

import pytest

from app.domain.outcome import OutcomeKind
from app.domain.state import State
from tests.faults.history import check
from tests.faults.statements import SETTLING
from tests.support.processes import LEASE, SLACK, SWEEP, Fleet, eventually, report
from tests.support.proxy import proxy_to
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(90)]


async def test_jobs_of_a_killed_worker_run_again_and_the_crash_is_on_record(
    fleet: Fleet, store: Store, dice: random.Random
) -> None:
    """P01, P21: nothing to configure; a crash is counted, an attempt is not."""
    async with proxy_to(fleet.url, fleet.folder) as proxy:
        victim = fleet.worker(OUTLAST_DATABASE_URL=proxy.url)
        await victim.ready()
        settle = proxy.hold(SETTLING, times=1_000)
        fleet.ledger.open("at-return")
        running = [
            await store.enqueue(dice.choice(("faults.hold", "faults.hold_sync")), {"gate": gate, "epochs": 1})
            for gate in dice.sample(["at-entry", "at-entry", "at-return", "at-return"], 4)
        ]
        await eventually(lambda: len(fleet.ledger.events("effect")) == 6, "two wait at entry, two have returned")
        await settle.until_caught()
        rescuer = fleet.worker()
        await rescuer.ready()
        killed = fleet.ledger.record("kill")
        victim.kill()
        settle.lose()
        views = await store.all_until(running)
    again = [event.mono - killed for event in fleet.ledger.events("effect") if event.type == "invoke"][4:]
    report(f"run again {max(again):.2f} s after the kill; promised {LEASE + SWEEP + 1:g} s")
    assert max(again) <= (LEASE + SWEEP + 1) * SLACK
    for view in views:
        assert view.state is State.DONE
        assert (view.counters.crashes, view.counters.attempt, view.counters.claim_no) == (1, 1, 2)
        assert view.result == '{"claim_no":2,"attempt":1}'
        assert await store.outcomes(view.id) == [OutcomeKind.CRASHED, OutcomeKind.COMPLETED]
        first = (await store.attempts(view.id))[0]
        assert (first.cause, first.counted, first.number) == ("worker_vanished", False, 1)
    assert len(rescuer.said("attempt.crashed")) == 4
    await check(store, fleet.ledger.events(), acked=running)
