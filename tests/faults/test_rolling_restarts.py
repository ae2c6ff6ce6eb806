"""Rolling restarts over a stream of jobs of every kind: deploys lose nothing, cost nothing and never take longer (F30).

Each restart replaces every worker, one after the other, while a producer keeps enqueueing; what ran is told, stops, is
cancelled or left behind, and comes back ahead of new work. Bodies that will not end do so in the first claim of their
job only. One job lives through all of it.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from app.control.deploys import DeployControl
from app.domain.job import JobId
from app.domain.ledger import CAUSE_ABANDONED, CAUSE_DRAIN, CAUSE_WORKER_CLOSED
from app.domain.state import State
from tests.faults import departures
from tests.faults.checkers import Bounds, Departure, left_in_order, resumed_before_new
from tests.faults.departures import Left
from tests.faults.history import check, writes
from tests.support.ledger import Event
from tests.support.processes import LONG_LEASE, SLACK, Fleet, Service, eventually, report
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres]

WATCHDOG = 2.0
CAUSES = {"interrupted": CAUSE_DRAIN, "abandoned": CAUSE_ABANDONED}
OBSERVED = 1.0  # from the end of a process to this one seeing it, on a busy machine

RESTARTS = 20
WORKERS = 2
JOBS_AT_ONCE = 125  # along with each replacement
LEAVING_AT_ONCE = 4
WARNED_FROM = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of job, and how it must end however many deploys it meets."""

    name: str
    payload: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    state: State = State.DONE
    attempt: int = 1

    @property
    def reads(self) -> bool:
        """Say whether its body looks at its signal while it waits."""
        return "gate" in self.payload and self.payload.get("heed", False)


ONCE = {"max_attempts": 1}
QUICK = (Kind(name="faults.hold"), Kind(name="faults.hold", fields=ONCE), Kind(name="faults.hold_sync", fields=ONCE))
FAILING = (
    Kind(name="faults.throw", payload={"kind": "system_exit"}, fields=ONCE, state=State.DEAD),
    Kind(name="faults.throw_in_child", payload={"kind": "system_exit"}, fields=ONCE, state=State.DEAD),
    Kind(name="faults.throw", payload={"kind": "system_exit"}, state=State.DEAD, attempt=2),
    Kind(name="faults.fail", payload={"times": 1}, attempt=2),
    Kind(name="faults.snooze", fields=ONCE),
)


def _until(gate: str, name: str, epochs: int = 1, *, heed: bool = False) -> Kind:
    return Kind(name=name, payload={"gate": gate, "epochs": epochs, "heed": heed}, fields=ONCE)


STUBBORN = (
    _until("never", "faults.hold"),  # ignores its signal, and is cancelled
    _until("never", "faults.swallow"),  # swallows that
    _until("never", "faults.hold_sync"),  # in a thread, which nothing ends
)
HEEDING = tuple(
    _until("never", name, epochs, heed=True) for name in ("faults.hold", "faults.hold_sync") for epochs in (1, 2)
)
LONG = _until("over", "faults.hold", 1_000, heed=True)
BLOCKING = _until("never", "faults.block")


def _stream(dice: random.Random, restarts: int) -> list[list[Kind]]:
    """Give what is enqueued along with each replacement: mostly quick work, and some of every other kind."""
    steps = restarts * WORKERS
    blocks = []
    for step in range(steps):
        # A third of the way the loop of a worker is blocked.
        block = [LONG] if step == 0 else [BLOCKING] if step == steps // 3 else []
        block += [*dice.sample(STUBBORN, 2), *dice.sample(HEEDING, 2), *FAILING]
        block += dice.choices(QUICK, k=JOBS_AT_ONCE - len(block))
        dice.shuffle(block)
        blocks.append(block)
    return blocks


@dataclass(slots=True)
class Rollout:
    """The restarts and the stream that goes on under them, with what became known of both."""

    fleet: Fleet
    store: Store
    budget: float
    restarts: int
    jobs: dict[JobId, Kind] = field(default_factory=dict)
    left: list[Left] = field(default_factory=list)
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LEAVING_AT_ONCE))

    def start(self) -> list[Service]:
        """Start as many workers as there are to be."""
        env = {"OUTLAST_DRAIN_SECONDS": str(self.budget), "OUTLAST_LOG_LEVEL": "info"} | LONG_LEASE
        return [self.fleet.worker(**env, OUTLAST_LOOP_STALL_SECONDS="600") for _ in range(WORKERS)]

    async def run(self, blocks: Sequence[Sequence[Kind]]) -> list[Service]:
        """Replace every worker once for each restart; gives the workers that are there in the end."""
        ahead: asyncio.Queue[Sequence[Kind]] = asyncio.Queue()
        workers = self.start()
        for worker in workers:
            await worker.ready()
        async with asyncio.TaskGroup() as tasks:
            producer = tasks.create_task(self._produce(ahead, len(blocks)))
            following = iter(blocks)
            for _ in range(self.restarts):
                successors = self.start()
                for old, new in zip(workers, successors, strict=True):
                    ahead.put_nowait(next(following))
                    await new.ready()
                    await self.room.acquire()
                    tasks.create_task(self._leave(old))
                workers = successors
            await producer
        return workers

    async def _produce(self, ahead: asyncio.Queue[Sequence[Kind]], count: int) -> None:
        for _ in range(count):
            block = await ahead.get()
            for some in (block[first : first + 8] for first in range(0, len(block), 8)):
                ids = await asyncio.gather(
                    *(self.store.enqueue(kind.name, kind.payload, **kind.fields) for kind in some)
                )
                self.jobs |= dict(zip(ids, some, strict=True))

    async def _leave(self, worker: Service) -> None:
        asked = self.fleet.ledger.record("term", worker=worker.pid)
        worker.terminate()
        code = await worker.gone(self.budget + WATCHDOG + SLACK)
        self.left.append(Left(worker=worker, asked=asked, gone=self.fleet.ledger.record("gone"), code=code))
        self.room.release()

    async def end(self, workers: Sequence[Service]) -> None:
        """Let everything come to its end, then the last workers, which have nothing to leave behind."""
        self.fleet.ledger.open("over")
        self.fleet.ledger.open("never")

        async def is_over() -> bool:
            (row,) = await self.store.fetch("select count(*) as number from outlast.finished")
            return int(row["number"]) == len(self.jobs)

        await eventually(is_over, "every job has ended", self.budget + 6 * SLACK)
        for worker in workers:
            await self.room.acquire()
            await self._leave(worker)


@pytest.mark.parametrize(
    ("budget", "restarts"),
    [
        pytest.param(3.0, 8, marks=pytest.mark.timeout(240)),
        pytest.param(3.0, RESTARTS, marks=[pytest.mark.long, pytest.mark.timeout(300)]),
        pytest.param(25.0, RESTARTS, marks=[pytest.mark.soak, pytest.mark.timeout(1_200)]),
    ],
)
async def test_rolling_restarts_lose_nothing_cost_nothing_and_keep_their_time(
    fleet: Fleet, store: Store, budget: float, restarts: int
) -> None:
    rollout = Rollout(fleet, store, budget, restarts)
    workers = await rollout.run(_stream(random.Random(20), restarts))
    await rollout.end(workers)
    events, history = fleet.ledger.events(), await writes(store)
    await check(store, events, acked=rollout.jobs)
    await _cost_nothing(store, rollout)
    await _named(store, rollout, events)
    readers: dict[UUID, int] = {job: int(kind.payload["epochs"]) for job, kind in rollout.jobs.items() if kind.reads}
    gone = await departures.departures(store, events, history, rollout.left, readers=readers)
    bounds = Bounds(claim=0.25 * SLACK, told=0.2 * SLACK, released=0.5 * SLACK, gone=budget + WATCHDOG + OBSERVED)
    for departure in gone:
        left_in_order(departure, bounds)
    resumed_before_new(departures.resumed(history), departures.taken(history))
    report(f"{departures.overtakings(history)} claims of resumed jobs had new ones waiting")
    _report(gone)


async def _cost_nothing(store: Store, rollout: Rollout) -> None:
    """No deploy is counted: each job ends as it would without, its attempts those that its own failures spent."""
    rows = await store.fetch(
        "select j.id, f.state, f.attempt, f.crashes, f.interrupts from outlast.finished f"
        " join outlast.job j on j.id = f.job_id"
    )
    ended = {row["id"]: ("dead" if row["state"] == 2 else "done", row["attempt"], row["crashes"]) for row in rows}
    assert ended == {job: (kind.state.value, kind.attempt, 0) for job, kind in rollout.jobs.items()}
    (long,) = (job for job, kind in rollout.jobs.items() if kind is LONG)
    (interrupts,) = (row["interrupts"] for row in rows if row["id"] == long)
    # Beside a loop that is blocked it misses a few: it is taken over only once that process is gone.
    assert interrupts >= rollout.restarts // 2, "deploys met the long job again and again"
    lines = [line for one in rollout.left for line in one.worker.said("attempt.interrupted", job_id=str(long))]
    levels = {line.get("interrupts", 0) >= WARNED_FROM: line["level"] for line in lines}
    expected = {False: "info", True: "warning"} if interrupts >= WARNED_FROM else {False: "info"}
    assert levels == expected, "it is warned of from ten interruptions on"
    assert rollout.restarts < RESTARTS or interrupts >= WARNED_FROM
    report(f"{len(ended)} jobs; the long one was interrupted {interrupts} times")


async def _named(store: Store, rollout: Rollout, events: Sequence[Event]) -> None:
    """Reports name each claim that the ledger has as interrupted by a drain or abandoned; the log each stuck body.

    Of what ended beside a loop that is blocked a worker cannot know whether it was stored: it reports it as abandoned.
    """
    rows = await store.fetch("select job_id, number, worker, cause from outlast.attempt where outcome = 'interrupted'")
    views = await store.driver.drains(limit=len(rollout.left))
    assert len(views) == len(rollout.left), "every worker left a report"
    runs = [(view.worker_id, one) for view in views for one in view.runs if one.run.fate in CAUSES]
    reported = {(str(one.run.job_id), one.run.claim_no, worker, CAUSES[one.run.fate]) for worker, one in runs}
    recorded = {(str(row["job_id"]), row["number"], row["worker"], row["cause"]) for row in rows}
    begun = {(event.job, event.epoch) for event in events if event.op == "effect"}
    over = {(event.job, event.epoch) for event in events if event.op == "effect" and event.type in {"ok", "fail"}}
    unnamed = recorded - reported
    assert {cause for *_, cause in unnamed} <= {CAUSE_WORKER_CLOSED}, "every interrupted and abandoned claim is named"
    assert not begun & {(job, number) for job, number, *_ in unnamed}, "what no report names never began"
    doubtful = reported - recorded
    assert {cause for *_, cause in doubtful} <= {CAUSE_ABANDONED}
    assert over >= {(job, number) for job, number, *_ in doubtful}, "what did not end was taken over"

    abandoned = {(job, number) for job, number, _, cause in reported if cause == CAUSE_ABANDONED}
    lines = [line for one in rollout.left for line in one.worker.said("worker.drain_abandoned")]
    said = {(line["job_id"], line["claim_no"]) for line in lines}
    assert abandoned - over <= said <= abandoned
    shown: Any = (await DeployControl(store.driver).list(limit=len(rollout.left), before=None))["items"]
    named = Counter(one["job_id"] for item in shown for one in item["cut"] if one["fate"] == "abandoned")
    assert named == Counter(job for job, _ in abandoned)
    leavers = {worker for worker, one in runs if one.run.fate == "abandoned"}
    assert Counter(one.code for one in rollout.left) == {70: len(leavers), 0: len(rollout.left) - len(leavers)}

    waits = sorted(one.claimed_after for _, one in runs if one.run.fate == "interrupted" and one.claimed_after)
    assert len(waits) == sum(one.run.fate == "interrupted" for _, one in runs), "all were claimed again"
    assert waits[-1] <= timedelta(seconds=SLACK), "promised: within a second while a worker is free"
    report(f"{len(waits)} interrupted, claimed again after {waits[len(waits) // 2]} (median), {waits[-1]} (most)")
    report(f"{len(abandoned)} abandoned by {len(leavers)} workers, of those {len(doubtful)} were stored all the same")
    report(f"{len(unnamed)} claimed and never begun")


def _report(gone: Sequence[Departure]) -> None:
    bodies = [(body, departure) for departure in gone for body in departure.bodies]
    told = sorted(body.told - departure.asked for body, departure in bodies if body.must_read and body.told is not None)
    back = sorted(body.released - body.ended for body, _ in bodies if body.released and body.ended)
    took = sorted(departure.gone - departure.asked for departure in gone)
    for what, figures in (("told", told), ("ready again after its body", back), ("gone", took)):
        report(
            f"{what}: {figures[len(figures) // 2]:.3f} s (median), {figures[-1]:.3f} s (most), {len(figures)} of them"
        )
