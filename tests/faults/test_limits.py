"""A limit of one under kill -9, SIGSTOP and SIGCONT, cancels and drains: never two bodies at once, and never stuck."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from app.domain.state import State
from tests.faults.checkers_limits import longest_stuck
from tests.faults.history import check, writes
from tests.support.ledger import Event
from tests.support.processes import DRAIN, LEASE, SLACK, SWEEP, Fleet, Service, eventually, report
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres]

# One round of each fault, and as many as a limit has to bear; the number is the seed, too. With it goes what the next
# claim may take beyond a lease and a sweep, in seconds: some statements, in the short form among all other tests.
ROUNDS = [
    pytest.param(5, SLACK, marks=pytest.mark.timeout(120)),
    pytest.param(200, 1.0, marks=[pytest.mark.soak, pytest.mark.timeout(2_400)]),
]
FAULTS = ("kill", "pause", "freeze", "cancel", "drain")
WORKERS = 2
A_ROUND = 3
# A lost worker's last renewal was before it was lost: one lease after that its slots are anybody's, and a sweep finds
# them.
STUCK_SECONDS = LEASE + SWEEP
# Of strikes that hit the worker whose body runs; the others hit any.
_AIMED = 0.75


@dataclass
class _Run:
    """What a round does to workers, and when bodies of which ended by it."""

    fleet: Fleet
    workers: list[Service] = field(default_factory=list)
    killed: dict[int, float] = field(default_factory=dict)
    frozen: dict[int, float] = field(default_factory=dict)
    zombies: list[Service] = field(default_factory=list)

    async def all_ready(self) -> None:
        """Have so many workers that take jobs: whoever is struck, another is there, and none starts meanwhile."""
        while len(self.workers) < WORKERS:
            self.workers.append(self.fleet.worker("--concurrency", "4"))
        for worker in self.workers:
            await worker.ready()

    def victim(self, dice: random.Random) -> Service:
        """Give the worker to strike: mostly the one whose body began last."""
        begun = [event.pid for event in self.fleet.ledger.events("effect") if event.type == "invoke"]
        aimed = [worker for worker in self.workers if worker.pid == begun[-1]]
        return aimed[0] if aimed and dice.random() < _AIMED else dice.choice(self.workers)


async def _strike(run: _Run, store: Store, fault: str, dice: random.Random, jobs: list[object]) -> None:
    ledger = run.fleet.ledger
    victim = run.victim(dice)
    match fault:
        case "kill":
            victim.kill()
            run.killed[victim.pid] = ledger.record("kill")
            run.workers.remove(victim)
        case "pause":
            victim.stop()
            began = ledger.record("pause")
            await eventually(lambda: ledger.record("wait") - began >= LEASE / 8, "a part of a lease passes")
            victim.resume()
        case "freeze":
            victim.stop()
            run.frozen[victim.pid] = ledger.record("freeze")
            run.zombies.append(victim)
            run.workers.remove(victim)
        case "cancel":
            await store.driver.cancel(dice.choice(jobs), reason="a test")  # type: ignore[arg-type] # ids of jobs
        case _:
            victim.terminate()
            run.workers.remove(victim)
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


async def _now(store: Store) -> float:
    """Give the instant by the clock of the database, as the audit writes it."""
    ((now,),) = await store.fetch("select extract(epoch from clock_timestamp())::float8")
    return float(now)


async def _longest_stuck(store: Store, rounds: list[tuple[str, float, float, float]]) -> dict[str, float]:
    """Give for each fault how long nobody new had the slot, at the longest, while jobs waited for it."""
    taken = [write.at for write in await writes(store) if (write.place, write.op) == ("slot", "INSERT")]
    longest: dict[str, float] = {}
    for fault, began, struck, ended in rounds:
        stuck = longest_stuck([at for at in taken if began <= at <= ended], struck)
        longest[fault] = max(longest.get(fault, 0.0), stuck)
    return longest


@pytest.mark.parametrize(("rounds", "claim_round"), ROUNDS)
@pytest.mark.parametrize("name", ["limits.one", "limits.thread"])
async def test_a_limit_of_one_holds_and_nobody_is_stuck(
    fleet: Fleet, store: Store, rounds: int, claim_round: float, name: str
) -> None:
    dice = random.Random(rounds)
    run = _Run(fleet)
    done, times = [], []
    for number in range(rounds):
        await run.all_ready()
        begun, began = len(fleet.ledger.events("effect")), await _now(store)
        jobs = [await store.enqueue(name, {"seconds": 0.08}) for _ in range(A_ROUND)]
        await eventually(lambda: len(fleet.ledger.events("effect")) > begun, "a body begins")  # noqa: B023 # awaited here
        fault = FAULTS[number % len(FAULTS)]
        struck = await _now(store)
        await _strike(run, store, fault, dice, list(jobs))
        await store.all_until(jobs, within=STUCK_SECONDS + DRAIN + 2 * SLACK)
        times.append((fault, began, struck, await _now(store)))
        done += jobs
        for zombie in run.zombies:
            zombie.resume()  # what it still does of its old life changes nothing; then it is a worker, and leaves
            zombie.terminate()
        run.zombies.clear()
    stuck = await _longest_stuck(store, times)
    told = ", ".join(f"{fault} {seconds:.2f} s" for fault, seconds in stuck.items())
    report(f"{rounds} rounds; nobody new had the slot for up to: {told}; a lease and a sweep are {STUCK_SECONDS:g} s")
    bodies = _bodies(run, fleet.ledger.events())
    for (_, until, one), (begins, _, other) in pairwise(bodies):
        assert until <= begins, f"{one} ran until {until:.3f}, and {other} began at {begins:.3f}"
    assert max(stuck.values()) <= STUCK_SECONDS + claim_round, stuck
    assert stuck["kill"] > 0 < stuck["freeze"]
    states = Counter([(await store.view(job_id)).state for job_id in done])
    assert states[State.DONE] + states[State.CANCELLED] == len(done), states
    held = "select count(*) as n, max(taken_at) as newest from outlast.slot"

    async def is_free() -> bool:
        return bool((await store.fetch(held))[0]["n"] == 0)

    await eventually(is_free, "no slot is held once nothing runs", STUCK_SECONDS + SLACK)
    await check(store, fleet.ledger.events(), acked=done)
