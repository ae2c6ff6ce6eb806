"""`outlast worker --processes N`: several workers under one parent, told once, kept, watched and ended as one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from app.domain.outcome import OutcomeKind
from app.domain.state import State
from tests.support.processes import DRAIN, Fleet, Service, eventually
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(120)]

WATCHDOG = 2.0
ABANDONED, CANNOT_START = 70, 64


def parent_of_two(fleet: Fleet, **variables: str) -> Service:
    return fleet.worker("--processes", "2", **variables)


async def shown(parent: Service) -> dict[str, object]:
    async with httpx.AsyncClient(base_url=parent.admin, timeout=10) as client:
        document: dict[str, object] = (await client.get("/v1/drain")).json()
        return document


def children(parent: Service) -> list[int]:
    """Give the processes that the parent has started and not yet ended, oldest first."""
    ended = {line["child_pid"] for line in parent.said("child.ended")}
    return [line["child_pid"] for line in parent.said("child.started") if line["child_pid"] not in ended]


async def completed(parent: Service) -> float:
    samples = await parent.metrics()
    return sum(
        value
        for (name, labels), value in samples.items()
        if name == "outlast_jobs_total" and ("outcome", "ok") in labels
    )


async def test_workers_of_one_parent_have_rows_of_their_own_and_are_seen_and_told_as_one(
    fleet: Fleet, store: Store
) -> None:
    parent = await parent_of_two(fleet, OUTLAST_CONCURRENCY="1").ready()
    rows = await store.driver.workers()
    assert sorted(row.pid for row in rows) == sorted(children(parent))
    jobs = [await store.enqueue("faults.hold", {"gate": "never"}, max_attempts=1) for _ in range(2)]
    await eventually(lambda: len(fleet.ledger.events("effect")) == 2, "each runs one")
    status = await shown(parent)
    assert (status["state"], status["in_flight_count"]) == ("running", 2)
    assert status["roles"] == {"worker.0": "running", "worker.1": "running"}
    parent.terminate()
    parent.terminate()
    for view in await store.all_until(jobs, State.READY):
        assert (view.counters.attempt, view.counters.interrupts) == (0, 1)
    assert await parent.gone(DRAIN + WATCHDOG) == 0
    assert all(row.closed_at is not None for row in await store.driver.workers())
    assert len(parent.said("worker.drain_signalled", cause="SIGTERM")) == 2, "one signal for each"


async def test_a_child_that_is_killed_comes_again_and_the_sum_does_not_fall(fleet: Fleet, store: Store) -> None:
    parent = await parent_of_two(fleet, OUTLAST_CONCURRENCY="1").ready()
    quick = [await store.enqueue("faults.hold", {}) for _ in range(6)]
    await store.all_until(quick)

    async def counts_six() -> bool:
        return await completed(parent) == 6

    await eventually(counts_six, "the sum is what both have done")
    victim, survivor = children(parent)
    os.kill(victim, signal.SIGKILL)
    await eventually(lambda: len(parent.said("child.started")) == 3, "another is started")
    (ended,) = parent.said("child.ended")
    assert (ended["child_pid"], ended["exit_code"], ended["again_after"]) == (victim, 137, 1.0)
    assert await completed(parent) == 6, "what the dead have counted stays"
    jobs = [await store.enqueue("faults.hold", {"gate": "both", "epochs": 1}) for _ in range(2)]
    await eventually(lambda: len(fleet.ledger.events("effect")) == 2 * 6 + 2, "each runs one")
    assert {event.pid for event in fleet.ledger.events("effect")[-2:]} == set(children(parent))
    assert survivor in children(parent)
    fleet.ledger.open("both")
    await store.all_until(jobs)
    parent.terminate()
    assert await parent.gone(DRAIN + WATCHDOG) == 0


async def test_children_of_a_parent_that_is_killed_leave_in_order(fleet: Fleet, store: Store) -> None:
    parent = await parent_of_two(fleet).ready()
    job_id = await store.enqueue("faults.hold", {"gate": "never"}, max_attempts=1)
    await eventually(lambda: fleet.ledger.events("effect") != [], "it runs")
    pids = children(parent)
    parent.kill()
    (view,) = await store.all_until([job_id], State.READY)
    assert (view.counters.attempt, view.counters.interrupts, view.counters.crashes) == (0, 1, 0)
    (attempt,) = await store.attempts(job_id)
    assert attempt.outcome is OutcomeKind.INTERRUPTED

    async def all_left() -> bool:
        return all(row.closed_at is not None for row in await store.driver.workers())

    await eventually(all_left, "both have closed their rows")
    await eventually(lambda: not any(is_there(pid) for pid in pids), "both are gone")


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()


async def test_the_worst_exit_code_is_the_parents(fleet: Fleet, store: Store) -> None:
    parent = await parent_of_two(fleet).ready()
    await store.enqueue("faults.deaf", {"gate": "never"})
    await eventually(lambda: fleet.ledger.events("effect") != [], "it runs")
    parent.terminate()
    assert await parent.gone(DRAIN + WATCHDOG + 1) == ABANDONED
    assert sorted(line["exit_code"] for line in parent.said("child.ended")) == [0, ABANDONED]


async def test_what_no_restart_mends_ends_them_all(fleet: Fleet, store: Store) -> None:
    parent = parent_of_two(fleet, OUTLAST_JOBS="no.such.module")
    assert await parent.gone() == CANNOT_START
    assert len(parent.said("child.started")) == 2, "nobody was started again"


async def test_a_child_that_was_asked_to_leave_is_not_started_again(fleet: Fleet, store: Store) -> None:
    parent = await parent_of_two(fleet).ready()
    first, second = await store.driver.workers()
    await store.driver.ask_drain(first.id, by="ann")
    await eventually(lambda: len(parent.said("child.ended")) == 1, "it leaves")
    async with httpx.AsyncClient(base_url=parent.admin, timeout=10) as client:
        assert (await client.get("/readyz")).status_code == 200, "the other one is all that is wanted"
        assert (await client.get("/startupz")).status_code == 200
    await store.driver.ask_drain(second.id, by="ann")
    assert await parent.gone() == 0
    assert len(parent.said("child.started")) == 2
    ended = parent.said("drain.ended")[-1]  # after those of the children
    assert str(ended["seconds"]) == "0.0", "the parent had not been told"


def test_a_store_in_memory_is_refused(fleet: Fleet) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "app", "worker", "--processes", "2", "--db", "memory://"],
        env=fleet.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == CANNOT_START
    assert "--processes" in done.stderr
