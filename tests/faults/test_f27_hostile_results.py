"""F27: what a body returns or raises and no store can keep ends coded, and holds up nobody settled beside it."""

from __future__ import annotations

import random

import pytest

from app.domain.outcome import OutcomeKind
from app.domain.state import State
from tests.faults.history import check
from tests.faults.statements import SETTLING
from tests.support.jobs_hostile import RESULTS
from tests.support.processes import LONG_LEASE, Fleet, eventually
from tests.support.proxy import proxy_to
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(90)]


async def test_results_that_cannot_be_stored_fail_coded_beside_neighbours_that_settle(
    fleet: Fleet, store: Store, dice: random.Random
) -> None:
    """P53, P54: one statement carries good and bad; a first settle that is held makes them one batch."""
    await store.publish()
    hostile = [(body, kind) for body in ("faults.give", "faults.give_sync") for kind in RESULTS]
    dice.shuffle(hostile)
    given = {
        await store.enqueue(body, {"kind": kind, "gate": "now"}, max_attempts=1 + dice.randrange(2)): (body, kind)
        for body, kind in hostile
    }
    given[await store.enqueue("faults.give_number")] = ("faults.give_number", "another type")
    neighbours = [await store.enqueue("faults.hold", {"gate": "now"}) for _ in range(10)]
    errors = [await store.enqueue("faults.throw", {"kind": kind, "gate": "now"}) for kind in ("nul", "surrogate")]
    first = await store.enqueue("faults.hold", {"gate": "first"})
    async with proxy_to(fleet.url, fleet.folder) as proxy:
        worker = fleet.worker("--concurrency", "100", OUTLAST_DATABASE_URL=proxy.url, **LONG_LEASE)
        settle = proxy.hold(SETTLING)
        fleet.ledger.open("first")
        await settle.until_caught()  # the first result holds all the others up
        fleet.ledger.open("now")
        await eventually(
            lambda: sum(e.type == "ok" for e in fleet.ledger.events("effect")) >= len(given) + len(neighbours),
            "all bodies have ended",
        )
        settle.release()
        for view in await store.all_until(list(given)):
            what = " ".join(given[view.id])
            assert view.state is State.DEAD, what
            attempts = await store.attempts(view.id)
            assert len(attempts) == view.max_attempts, what
            assert [a.outcome for a in attempts][-1] is OutcomeKind.DEAD_LETTERED, what
            for attempt in attempts:
                assert attempt.counted, what
                assert attempt.error is not None, what
                assert attempt.error.code == "RESULT_INVALID", f"{what}: {attempt.error}"
                assert len(attempt.error.message.encode()) <= 8 * 1024, what
        for view in await store.all_until([*neighbours, first]):
            assert (view.state, view.counters.claim_no) == (State.DONE, 1)
        for view in await store.all_until(errors):
            assert view.state is State.DEAD
        assert await store.fetch("select from outlast.running") == []
        assert worker.said("lease.lost") == []
        assert "never retrieved" not in worker.text
        worker.terminate()
        assert await worker.gone() == 0
    await check(store, fleet.ledger.events(), acked=[*given, *neighbours, *errors, first])
