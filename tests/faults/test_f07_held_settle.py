"""F7: the settle of a frozen worker is on the wire while its job is taken over, and arrives afterwards."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from app.domain.job import JobId
from app.domain.outcome import OutcomeKind
from app.domain.state import State
from tests.faults.history import check, writes
from tests.faults.statements import SETTLING
from tests.faults.written import Write
from tests.support.processes import Fleet, Service, eventually, report
from tests.support.proxy import proxy_to
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(90)]


async def test_a_settle_that_arrives_after_the_claim_was_taken_over_touches_nothing(
    fleet: Fleet, store: Store, seed: int, dice: random.Random
) -> None:
    """The other worker runs the jobs at that instant, or has finished them; one or several are in the statement."""
    is_finished_first, count = seed % 2 == 0, dice.choice((1, 5))
    report(f"the other worker has finished: {is_finished_first}; jobs in the statement: {count}")
    async with proxy_to(fleet.url, fleet.folder) as proxy:
        late = await fleet.worker(OUTLAST_DATABASE_URL=proxy.url).ready()
        settle = proxy.hold(SETTLING)
        jobs = [await store.enqueue("faults.hold", {"gate": "gate-{epoch}"}) for _ in range(count)]
        await eventually(lambda: len(fleet.ledger.events("effect")) == count, "all run")
        fleet.ledger.open("gate-1")
        await settle.until_caught()
        late.stop()
        other = fleet.worker()
        await eventually(lambda: _begun(fleet, other) == count, "the other worker runs them")
        if is_finished_first:
            fleet.ledger.open("gate-2")
            await store.all_until(jobs)
        before = await _writes_about(store, jobs)
        settle.release()
        await _executed(store)
        assert await _writes_about(store, jobs) == before, "the late statement wrote something"
        late.resume()
        await eventually(lambda: len(late.said("lease.lost")) == count, "the late worker knows it is superseded")
        assert late.said("attempt.completed") == []
        counted = [name for name, _ in await late.metrics() if name == "outlast_jobs_total"]
        assert counted == [], "an outcome that was not stored was counted"
        fleet.ledger.open("gate-2")
        for view in await store.all_until(jobs):
            assert view.state is State.DONE
            assert view.result == '{"claim_no":2,"attempt":1}'
            assert await store.outcomes(view.id) == [OutcomeKind.CRASHED, OutcomeKind.COMPLETED]
    await check(store, fleet.ledger.events(), acked=jobs)


def _begun(fleet: Fleet, worker: Service) -> int:
    return sum(event.type == "invoke" and event.pid == worker.pid for event in fleet.ledger.events("effect"))


async def _writes_about(store: Store, jobs: Sequence[JobId]) -> list[Write]:
    return [write for write in await writes(store) if write.job_id in jobs]


async def _executed(store: Store) -> None:
    """Come back once the released statement has run: its connection is idle again and its text is the last."""

    async def ran() -> bool:
        rows = await store.fetch(
            "select query from pg_stat_activity where application_name = 'outlast' and state = 'idle'"
            " and datname = current_database()"
        )
        return any(row["query"].lstrip().startswith(SETTLING) for row in rows)

    await eventually(ran, "the late settle was executed")
