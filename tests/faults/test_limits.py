"""A limit of one under kill -9, SIGSTOP and SIGCONT, cancels and drains: never two bodies at once, and never stuck."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from app.domain.state import State
from tests.faults.history import check
from tests.support.ledger import Event
from tests.support.processes import DRAIN, LEASE, SLACK, SWEEP, Fleet, Service, eventually, report
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres]

ROUNDS = [
    pytest.param(5, marks=pytest.mark.timeout(120)),
    pytest.param(200, marks=[pytest.mark.soak, pytest.mark.timeout(2_400)]),
]
FAULTS = ("kill", "pause", "freeze", "cancel", "drain")
WORKERS = 2
A_ROUND = 3
# A frozen worker's last renewal was before it was frozen; its slots are free one lease after that at the latest.
STUCK_SECONDS = LEASE + SWEEP


@dataclass
class _Run:
    """What a round does to workers, and when bodies of which ended by it."""

    fleet: Fleet
    workers: list[Service]
    killed: dict[int, float] = field(default_factory=dict)
    frozen: dict[int, float] = field(default_factory=dict)
    zombies: list[Service] = field(default_factory=list)

    def replace(self, victim: Service) -> None:
        self.workers.remove(victim)
        self.workers.append(self.fleet.worker("--concurrency", "4"))


async def _strike(run: _Run, store: Store, fault: str, dice: random.Random, jobs: list[object]) -> None:
    ledger = run.fleet.ledger
    victim = dice.choice(run.workers)
    match fault:
        case "kill":
            victim.kill()
            run.killed[victim.pid] = ledger.record("kill")
            run.replace(victim)
        case "pause":
            victim.stop()
            began = ledger.record("pause")
            await eventually(lambda: ledger.record("wait") - began >= LEASE / 8, "a part of a lease passes")
            victim.resume()
        case "freeze":
            victim.stop()
            run.frozen[victim.pid] = ledger.record("freeze")
            run.zombies.append(victim)
            run.replace(victim)
        case "cancel":
            await store.driver.cancel(dice.choice(jobs), reason="a test")  # type: ignore[arg-type] # ids of jobs
        case _:
            victim.terminate()
            run.replace(victim)
            await victim.gone(DRAIN + SLACK)


def _bodies(run: _Run, events: list[Event]) -> list[tuple[float, float, str]]:
    """Give when each body ran: until it ended, was killed, or its frozen worker's lease was over."""
    effects = [event for event in events if event.op == "effect"]
    ends = {(event.pid, event.job, event.epoch): event.mono for event in effects if event.type != "invoke"}
    bodies = []
    for event in (event for event in effects if event.type == "invoke"):
        until = ends.get((event.pid, event.job, event.epoch), float("inf"))
        until = min(until, run.killed.get(event.pid, until))
        frozen = run.frozen.get(event.pid)
        if frozen is not None and event.mono < frozen < until:
            until = frozen  # whatever it does after its lease is a zombie's; before, it stands still
        bodies.append((event.mono, until, f"{event.job} claim {event.epoch} in {event.pid}"))
    return sorted(bodies)


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("name", ["limits.one", "limits.thread"])
async def test_a_limit_of_one_holds_and_nobody_is_stuck(
    fleet: Fleet, store: Store, dice: random.Random, rounds: int, name: str
) -> None:
    run = _Run(fleet, [])
    for _ in range(WORKERS):
        run.workers.append(await fleet.worker("--concurrency", "4").ready())
    longest, done, tally = 0.0, [], Counter[str]()
    for number in range(rounds):
        began = len(fleet.ledger.events("effect"))
        jobs = [await store.enqueue(name, {"seconds": 0.08}) for _ in range(A_ROUND)]
        await eventually(lambda: len(fleet.ledger.events("effect")) > began, "a body begins")  # noqa: B023 # awaited here
        fault = FAULTS[number % len(FAULTS)]
        tally[fault] += 1
        struck = fleet.ledger.record("strike")
        await _strike(run, store, fault, dice, list(jobs))
        # A new worker has to start; the others go on meanwhile.
        await store.all_until(jobs, within=STUCK_SECONDS + DRAIN + 2 * SLACK)
        longest = max(longest, fleet.ledger.record("finished") - struck)
        done += jobs
        for zombie in run.zombies:
            zombie.resume()  # what it still does of its old life changes nothing; then it is a worker, and leaves
            zombie.terminate()
        run.zombies.clear()
    report(f"{dict(tally)}; the longest round took {longest:.2f} s; a lease and a sweep are {STUCK_SECONDS:g} s")
    bodies = _bodies(run, fleet.ledger.events())
    for (_, until, one), (begins, _, other) in pairwise(bodies):
        assert until <= begins, f"{one} ran until {until:.3f}, and {other} began at {begins:.3f}"
    states = Counter([(await store.view(job_id)).state for job_id in done])
    assert states[State.DONE] + states[State.CANCELLED] == len(done), states
    held = "select count(*) as n, max(taken_at) as newest from outlast.slot"

    async def is_free() -> bool:
        return bool((await store.fetch(held))[0]["n"] == 0)

    await eventually(is_free, "no slot is held once nothing runs", STUCK_SECONDS + SLACK)
    await check(store, fleet.ledger.events(), acked=done)
