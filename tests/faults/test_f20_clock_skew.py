"""F20: processes whose clocks are minutes and hours wrong, or are set back while they work, change nothing.

What is due, held, over or old is judged by the database; what a process waits for goes by a clock that nobody sets.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from uuid_utils.compat import uuid7

from app.domain.job import JobId
from app.domain.outcome import OutcomeKind
from app.domain.state import State
from tests.faults.history import check
from tests.support.ledger import Event
from tests.support.made import new_job
from tests.support.processes import (
    DRAIN,
    LEASE,
    POLL,
    SLACK,
    SWEEP,
    Fleet,
    Service,
    client_of,
    eventually,
    report,
)
from tests.support.skewed import SKEW_FILE, set_clock
from tests.support.store import Store, job_id_of

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(180)]

HOUR = 3600.0
FIVE_MINUTES = 300.0
STEP = -60.0
_ROUNDS = 4


@dataclass
class Clocks:
    """Starts processes whose clocks are so many seconds ahead, and sets them."""

    fleet: Fleet

    def file(self, name: str) -> Path:
        return self.fleet.folder / f"{name}.clock"

    def start(self, name: str, role: str, ahead: float, *words: str, **variables: str) -> Service:
        set_clock(self.file(name), ahead)
        named = {SKEW_FILE: str(self.file(name)), **variables}
        words = (role, "--admin-port", "0", *words)
        return self.fleet.start(*words, module="tests.support.skewed", **named)

    def set(self, name: str, ahead: float) -> None:
        set_clock(self.file(name), ahead)


@pytest.fixture
def clocks(fleet: Fleet) -> Clocks:
    return Clocks(fleet)


@dataclass(frozen=True)
class DatabaseTime:
    """The database's clock on the one that the machine's processes share."""

    at: datetime
    mono: float

    @classmethod
    async def read(cls, store: Store) -> DatabaseTime:
        before = time.monotonic()
        at = await store.driver.database_time()
        return cls(at, (before + time.monotonic()) / 2)

    def of(self, mono: float) -> datetime:
        return self.at + timedelta(seconds=mono - self.mono)


def _shows(service: Service, event: str) -> float:
    """Give how far ahead a process believes it is, by its log."""
    at = datetime.fromisoformat(service.said(event)[0]["timestamp"])
    return (at - datetime.now(UTC)).total_seconds()


def _starts(fleet: Fleet, job_id: JobId) -> list[Event]:
    return [event for event in fleet.ledger.events("effect", job=job_id) if event.type == "invoke"]


async def _asked(
    api: Service, count: int, name: str, payload: dict[str, Any] | None = None, **fields: Any
) -> list[Any]:
    """Enqueue over HTTP; gives the ids."""
    async with client_of(api) as client:
        body = {"name": name, "payload": payload or {}, **fields}
        answers = await asyncio.gather(*(client.post("/v1/jobs", json=body) for _ in range(count)))
    assert [answer.status_code for answer in answers] == [201] * count, answers[0].text
    return [job_id_of(answer.json()["id"]) for answer in answers]


async def test_leases_due_times_and_crashes_do_not_know_of_the_clocks_of_processes(
    fleet: Fleet, store: Store, clocks: Clocks
) -> None:
    await store.publish()
    api = await clocks.start("api", "api", -HOUR, "--port", "0").ready()
    ahead = await clocks.start("ahead", "worker", HOUR, "--queues", "doomed,default").ready()
    others = [
        await clocks.start("behind", "worker", -HOUR).ready(),
        await clocks.start("early", "worker", FIVE_MINUTES).ready(),
    ]
    assert abs(_shows(ahead, "worker.started") - HOUR) < FIVE_MINUTES
    since = await DatabaseTime.read(store)
    jobs = await _asked(api, 40, "faults.hold")
    jobs += await _asked(api, 10, "faults.fail", {"times": 2})
    jobs += await _asked(api, 5, "faults.snooze", {"seconds": 0.3})
    delayed = await _asked(api, 10, "faults.hold", delay_ms=1_500)
    run_at = since.at + timedelta(seconds=2)
    fixed = await _asked(api, 10, "faults.hold", run_at=run_at.isoformat())
    due = dict.fromkeys(fixed, run_at)
    for row in await store.fetch("select id, run_at, created_at from outlast.job where id = any($1)", delayed):
        due[row["id"]] = row["run_at"] or row["created_at"] + timedelta(milliseconds=1_500)
    held = await _asked(api, 3, "faults.hold", {"gate": "doom", "epochs": 1}, queue="doomed")
    await eventually(lambda: sum(len(_starts(fleet, job)) for job in held) == 3, "they are held")
    await store.all_until([*jobs, *delayed, *fixed])
    errors = [(since.of(_starts(fleet, job)[0].mono) - at).total_seconds() for job, at in due.items()]
    report(f"started {min(errors):.3f} to {max(errors):.3f} s after they were due; promised {POLL + 0.1:g}")
    assert min(errors) > -0.05, "nothing starts before it is due"
    assert max(errors) < POLL + 0.1 + SLACK
    for service in (ahead, *others):
        waited = sum(
            value for (name, _), value in (await service.metrics()).items() if name.endswith("wait_seconds_sum")
        )
        assert waited < FIVE_MINUTES, "waits are the database's to tell"
        assert not service.said("lease.lost")
        assert not service.said("heartbeat.failed")
    killed = fleet.ledger.record("kill")
    ahead.kill()
    rescuer = await clocks.start("rescuer", "worker", -HOUR, "--queues", "doomed").ready()
    await store.all_until(held, State.DONE)
    again = max(_starts(fleet, job)[-1].mono for job in held) - killed
    report(f"run again {again:.2f} s after the kill; promised {LEASE + SWEEP + 1:g} s")
    assert LEASE / 2 < again < (LEASE + SWEEP + 1) * SLACK
    for job in held:
        assert await store.outcomes(job) == [OutcomeKind.CRASHED, OutcomeKind.COMPLETED]
    assert not rescuer.said("lease.lost")
    await check(store, fleet.ledger.events(), acked=[*jobs, *delayed, *fixed, *held])


@pytest.mark.long
async def test_a_clock_that_is_set_back_while_bodies_run_moves_no_local_deadline(
    fleet: Fleet, store: Store, clocks: Clocks
) -> None:
    await store.publish()
    worker = await clocks.start("worker", "worker", FIVE_MINUTES).ready()
    timed = await store.enqueue("faults.hold", {"gate": "never", "epochs": 1}, timeout=timedelta(seconds=3))
    deaf = await store.enqueue("faults.deaf", {"gate": "stays"})
    await eventually(lambda: len(fleet.ledger.events("effect")) == 2, "both run")
    began = _starts(fleet, timed)[0].mono
    clocks.set("worker", FIVE_MINUTES + STEP)
    await eventually(lambda: len(_starts(fleet, timed)) > 1, "its time is over, and it runs again")
    took = _starts(fleet, timed)[1].mono - began
    report(f"cut {took:.2f} s after it began; promised 3 s")
    assert 2.9 < took < 3 + SLACK
    await store.until(timed, State.DONE)
    (renewed,) = await store.fetch("select lease_until - outlast.clock() as left from outlast.worker")
    assert timedelta() < renewed["left"] <= timedelta(seconds=LEASE), "the lease goes on"
    told = time.monotonic()
    worker.terminate()
    await eventually(lambda: worker.said("worker.drain_signalled") != [], "it drains")
    clocks.set("worker", FIVE_MINUTES + 2 * STEP)
    assert await worker.gone() == 70, "a body that heeds nothing is abandoned"
    took = time.monotonic() - told
    report(f"gone {took:.2f} s after it was told; promised {DRAIN:g} s")
    assert DRAIN / 2 < took < DRAIN + 2 + SLACK
    rescuer = await clocks.start("rescuer", "worker", -HOUR).ready()
    fleet.ledger.open("stays")
    await store.until(deaf, State.DONE)
    assert await store.outcomes(deaf) == [OutcomeKind.INTERRUPTED, OutcomeKind.COMPLETED]
    assert not rescuer.said("lease.lost")
    await check(store, fleet.ledger.events(), acked=[timed, deaf])


@pytest.mark.long
async def test_schedules_fire_at_the_databases_minute_once_whoever_decides(
    fleet: Fleet, store: Store, clocks: Clocks
) -> None:
    declared = {"OUTLAST_JOBS": "tests.support.jobs_schedules"}
    for number, ahead in enumerate((HOUR, -HOUR, -FIVE_MINUTES)):
        await clocks.start(f"scheduler{number}", "scheduler", ahead, **declared).ready()
    await store.clock_before_a_minute(1)

    async def decided() -> list[Any]:
        return await store.fetch("select at, decided_at, outcome from outlast.occurrence order by at")

    async def has_fired() -> bool:
        return bool(await decided())

    async def have_fired() -> bool:
        return len(await decided()) > 1

    await eventually(has_fired, "a minute is over", within=30)
    clocks.set("scheduler2", STEP - FIVE_MINUTES)
    await store.clock_before_a_minute(1)
    await eventually(have_fired, "another minute is over", within=30)
    rows = await decided()
    for row in rows:
        assert (row["at"].second, row["at"].microsecond) == (0, 0)
        assert timedelta() <= row["decided_at"] - row["at"] < timedelta(seconds=SLACK)
    (jobs,) = await store.fetch("select count(*) from outlast.job")
    assert jobs[0] == sum(row["outcome"] == 0 for row in rows)
    await check(store, fleet.ledger.events())


async def test_a_purge_deletes_what_the_database_calls_old(fleet: Fleet, store: Store, clocks: Clocks) -> None:
    await store.publish()
    worker = await clocks.start("first", "worker", -HOUR).ready()
    week_ago = time.time_ns() - int(timedelta(days=8).total_seconds()) * 1_000_000_000
    jobs = [JobId(uuid7(nanoseconds=week_ago + number)) for number in range(2)]
    await store.driver.enqueue_many([new_job("faults.hold", id=job, queue="default", payload="{}") for job in jobs])
    await store.all_until(jobs)
    worker.terminate()
    assert await worker.gone() == 0
    await store.fetch("alter table outlast.finished disable trigger test_audit")
    for job_id, age in zip(jobs, ("7 days 30 minutes", "6 days 23 hours 30 minutes"), strict=True):
        await store.fetch(
            "update outlast.finished set finished_at = outlast.clock() - $2::text::interval where job_id = $1",
            job_id,
            age,
        )
    await store.fetch("alter table outlast.finished enable trigger test_audit")
    for name, ahead in (("ahead", HOUR), ("behind", -HOUR)):
        clocks.start(name, "worker", ahead, OUTLAST_PURGE_SECONDS="1")

    async def left() -> list[Any]:
        return [row["id"] for row in await store.fetch("select id from outlast.job order by id")]

    async def rounds() -> int:
        rows = await store.fetch("select distinct round_at from outlast.purge_mark where kind = 'jobs'")
        seen.update(row["round_at"] for row in rows)
        return len(seen)

    seen = set[datetime]()

    async def is_over() -> bool:
        return await rounds() >= _ROUNDS

    await eventually(is_over, "both have had their turn")
    assert await left() == [jobs[1]]
