"""Every worker killed at once, and started again when all their leases are long over."""

from __future__ import annotations

import time

import pytest

from app.domain.outcome import OutcomeKind
from app.domain.state import State
from tests.faults.history import check, writes
from tests.faults.statements import TAKING
from tests.support.processes import LEASE, Fleet, eventually, report
from tests.support.proxy import proxy_to
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(120)]

WORKERS = 3
CONCURRENCY = 8
PLACES = WORKERS * CONCURRENCY
AFTER_LEASES = 3
MOST_CLAIMS = PLACES * 2  # in the first second


async def test_all_workers_killed_at_once_lose_nothing_and_do_not_come_back_as_a_herd(
    fleet: Fleet, store: Store
) -> None:
    """Each orphaned claim is one crash, whoever finds it, and no attempt; nobody else's job is charged."""
    await store.publish()
    width = {"OUTLAST_CONCURRENCY": str(CONCURRENCY)}
    workers = [await fleet.worker(**width).ready() for _ in range(WORKERS)]
    names = ("faults.hold", "faults.hold_sync")
    jobs = [await store.enqueue(names[n % 2], {"gate": "later"}) for n in range(3 * PLACES)]
    await eventually(lambda: len(fleet.ledger.events("effect")) == PLACES, "every place is taken")
    for worker in workers:
        worker.kill()
    orphaned = {row["job_id"] for row in await store.fetch("select job_id from outlast.running")}
    assert len(orphaned) == PLACES
    killed = time.monotonic()
    await eventually(lambda: time.monotonic() - killed > AFTER_LEASES * LEASE, f"{AFTER_LEASES} leases pass")
    async with proxy_to(fleet.url, fleet.folder) as proxy:
        looks = proxy.count(TAKING)
        workers = [fleet.worker(OUTLAST_DATABASE_URL=proxy.url, **width) for _ in range(WORKERS)]
        await eventually(lambda: looks.count > 0, "the first one looks")
        first = time.monotonic()
        await eventually(lambda: time.monotonic() - first > 1.0, "a second passes")
        report(f"{looks.count} looks for work in the first second")
        assert looks.count <= MOST_CLAIMS
        await eventually(lambda: len(fleet.ledger.events("effect")) >= 2 * PLACES, "every place is taken again")
        claimed = [write.at for write in await writes(store) if (write.op, write.place) == ("INSERT", "running")]
        again = [at for at in claimed[PLACES:] if at < claimed[PLACES] + 1.0]
        report(f"{len(again)} claims in the first second")
        assert len(again) <= MOST_CLAIMS
        fleet.ledger.open("later")
        for view in await store.all_until(jobs):
            is_orphan = view.id in orphaned
            assert view.state is State.DONE
            assert (view.counters.attempt, view.counters.crashes) == (1, int(is_orphan))
            expected = [OutcomeKind.CRASHED, OutcomeKind.COMPLETED] if is_orphan else [OutcomeKind.COMPLETED]
            assert await store.outcomes(view.id) == expected
        for worker in workers:
            worker.terminate()
        assert [await worker.gone() for worker in workers] == [0] * WORKERS
    assert sum(len(worker.said("attempt.crashed")) for worker in workers) == PLACES, "each crash is said once"
    await check(store, fleet.ledger.events(), acked=jobs)
