"""A deploy: SIGTERM interrupts what runs, uncounted, and the process is gone within its budget, always."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from app.domain.outcome import OutcomeKind
from app.domain.state import State
from tests.support.processes import DRAIN, Fleet, eventually, report
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(90)]

WATCHDOG = 2.0


async def test_a_terminated_worker_hands_its_jobs_back_uncounted_and_ends_with_0(fleet: Fleet, store: Store) -> None:
    """P03, P06: one attempt is enough for a job that was interrupted; one that ends after being told has ended."""
    worker = fleet.worker()
    stubborn = await store.enqueue("faults.hold", {"gate": "done", "heed": False}, max_attempts=1)
    names = ("faults.hold", "faults.hold_sync") * 2
    told = [await store.enqueue(name, {"gate": "next", "epochs": 1}, max_attempts=1) for name in names]
    await worker.ready()
    await eventually(lambda: len(fleet.ledger.events("effect")) == len(told) + 1, "all run")
    sent = fleet.ledger.record("term")
    worker.terminate()
    for view in await store.all_until(told, State.READY):
        assert (view.counters.attempt, view.counters.interrupts, view.counters.crashes) == (0, 1, 0)
        (attempt,) = await store.attempts(view.id)
        assert (attempt.outcome, attempt.cause, attempt.counted) == (OutcomeKind.INTERRUPTED, "drain", False)
    later = await store.enqueue("faults.hold", {}, max_attempts=1)
    fleet.ledger.open("done")
    assert await worker.gone(DRAIN + WATCHDOG) == 0
    report(f"gone {fleet.ledger.record('gone') - sent:.2f} s after SIGTERM; the budget is {DRAIN:g} s")
    assert (await store.view(stubborn)).state is State.DONE
    assert await store.state(later) is State.READY, "nothing is claimed after SIGTERM"
    (own,) = await store.driver.workers()
    assert own.closed_at is not None
    await fleet.worker().ready()
    for view in await store.all_until([*told, later]):
        assert (view.state, view.counters.attempt) == (State.DONE, 1)


async def test_a_body_that_will_not_end_is_abandoned_and_named_and_taken_over_uncounted(
    fleet: Fleet, store: Store
) -> None:
    """P02, P08: deaf on the loop and deaf in a thread; the process leaves all the same, and says so with 70."""
    worker = await fleet.worker().ready()
    deaf = [
        await store.enqueue("faults.deaf", {"gate": "never"}),
        await store.enqueue("faults.hold_sync", {"gate": "never", "heed": False, "epochs": 1}),
    ]
    await eventually(lambda: len(fleet.ledger.events("effect")) == 2, "both run")
    sent = fleet.ledger.record("term")
    worker.terminate()
    successor = fleet.worker()
    assert await worker.gone(DRAIN + WATCHDOG + 1) == 70
    report(f"gone {fleet.ledger.record('gone') - sent:.2f} s after SIGTERM; promised {DRAIN + WATCHDOG:g} s")
    assert {line["job_id"] for line in worker.said("worker.drain_abandoned")} == {str(job_id) for job_id in deaf}
    await successor.ready()
    fleet.ledger.open("never")
    for view in await store.all_until(deaf):
        assert (view.state, view.counters.attempt, view.counters.crashes) == (State.DONE, 1, 0)
        first = (await store.attempts(view.id))[0]
        assert (first.outcome, first.cause, first.counted) == (OutcomeKind.INTERRUPTED, "abandoned", False)


async def test_a_body_that_blocks_the_loop_is_abandoned_too_and_its_neighbours_count_nothing(
    fleet: Fleet, store: Store
) -> None:
    """The watchdog ends the process; what it held was marked by then, and the process could be watched meanwhile.

    A loop that stands still for too long ends a process that stays, which books a crash; one that leaves has its word.
    """
    worker = await fleet.worker(OUTLAST_CONCURRENCY="3", OUTLAST_LOOP_STALL_SECONDS="4").ready()
    held = [
        await store.enqueue("faults.hold_sync", {"gate": "never", "heed": heed, "epochs": 1}) for heed in (True, False)
    ]
    await eventually(lambda: len(fleet.ledger.events("effect")) == 2, "both threads run")
    held.append(await store.enqueue("faults.block", {"gate": "never", "epochs": 1}))
    await eventually(lambda: len(fleet.ledger.events("effect")) == 3, "the loop is blocked")
    sent = fleet.ledger.record("term")
    worker.terminate()
    await eventually(lambda: len(fleet.ledger.events("told")) == 1, "the body in a thread has read its signal")
    async with httpx.AsyncClient(base_url=worker.admin) as admin:
        shown = (await admin.get("/v1/drain")).json()
    assert (shown["state"], shown["signal"], shown["in_flight_count"]) == ("draining", "SIGTERM", 3)
    by_name = {(run["job_type"], run["acknowledged"]) for run in shown["in_flight"]}
    assert by_name == {("faults.hold_sync", True), ("faults.hold_sync", False), ("faults.block", False)}
    assert all(run["told_ms"] is not None for run in shown["in_flight"])
    successor = fleet.worker()
    assert await worker.gone(DRAIN + WATCHDOG + 1) == 70
    report(f"gone {fleet.ledger.record('gone') - sent:.2f} s after SIGTERM; promised {DRAIN + WATCHDOG:g} s")
    assert sorted(line["job_id"] for line in worker.said("worker.drain_abandoned")) == sorted(map(str, held))
    (left,) = await store.driver.drains(limit=1)
    assert {(one.run.job_id, one.run.fate, one.run.has_ignored) for one in left.runs} == {
        (held[0], "abandoned", False),
        (held[1], "abandoned", True),
        (held[2], "abandoned", True),
    }
    await successor.ready()
    for view in await store.all_until(held):
        assert (view.state, view.counters.attempt, view.counters.crashes) == (State.DONE, 1, 0)
        first = (await store.attempts(view.id))[0]
        assert (first.outcome, first.cause, first.counted) == (OutcomeKind.INTERRUPTED, "abandoned", False)


async def test_a_worker_that_waits_for_its_database_can_be_told_to_leave(fleet: Fleet) -> None:
    worker = fleet.worker(OUTLAST_DATABASE_URL="postgresql://outlast@/outlast?host=/nowhere")
    await eventually(lambda: worker.code is not None or _listens(worker.pid), "its admin listener is there")
    worker.terminate()
    assert await worker.gone(DRAIN + WATCHDOG) == 0


async def test_a_database_that_stays_away_ends_a_starting_process_with_69(fleet: Fleet) -> None:
    away = fleet.worker(OUTLAST_DATABASE_URL="postgresql://outlast@/outlast?host=/nowhere", OUTLAST_START_SECONDS="0.5")
    assert await away.gone() == 69
    assert "Traceback" not in away.text
    assert "DRIVER_UNAVAILABLE" in away.text


def _listens(pid: int) -> bool:
    """Say whether a process has a socket that listens, which ours only has once its signals are owned."""
    inodes = {
        line.split()[9] for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:] if line.split()[3] == "0A"
    }
    links = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(str(entry.readlink()))
        except OSError:
            continue
    return any(f"socket:[{inode}]" in links for inode in inodes)
