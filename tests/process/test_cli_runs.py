"""The command line on runs and events: what it prints, follows and refuses, and what it exits with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from app.domain.job import ClaimedJob
from app.domain.outcome import Completed, DeadLettered, ErrorInfo, Held, Settlement, Suspended
from app.domain.snapshot import NewWorker
from app.domain.state import DeadReason
from app.domain.step import NewNotes, NewStep, NewWait, Place, StepKind
from app.drivers.protocol import ClaimRequest, QueueShare
from tests.process.conftest import Outlast
from tests.support.store import Store, store_on

pytestmark = [pytest.mark.postgres]

NAME = "faults.hold"
UNKNOWN = "0198c0f4-7c1a-7b3e-9a55-3f0a1c2d4e5f"
DEAD = DeadLettered(error=ErrorInfo(type="ValueError", message="no shop"), reason=DeadReason.TERMINAL)
WAIT = NewWait(
    name="approval",
    kind=StepKind.EVENT,
    place=Place("", 1),
    delay=timedelta(days=3),
    event="order.approved",
    key="7",
)


@pytest.fixture
def cli(outlast: Outlast, database_url: str) -> Outlast:
    """The command on a database that knows the tests' job types."""

    async def publish() -> None:
        async with store_on(database_url) as store:
            await store.publish()

    asyncio.run(publish())
    return outlast.on(database_url)


def work(url: str, *deeds: Callable[[Store, ClaimedJob], Awaitable[object]]) -> None:
    """Claim the one job that is ready and do these with the claim, in order."""

    async def run() -> None:
        async with store_on(url) as store:
            claimed = await _claim(store)
            for deed in deeds:
                await deed(store, claimed)

    asyncio.run(run())


async def _claim(store: Store) -> ClaimedJob:
    fields: dict[str, Any] = {"host": "h", "pid": 1, "code_version": "1", "queues": ("default",), "concurrency": 1}
    worker = await store.driver.register_worker(NewWorker(boot_id=uuid4(), lease_ms=60_000, **fields))
    shares = (QueueShare(queue="default", room=1),)
    request = ClaimRequest(worker_id=worker, shares=shares, names=frozenset({NAME}), room=1)
    (claimed,) = await store.driver.claim(request)
    return claimed


def recorded(name: str, number: int = 0) -> Callable[[Store, ClaimedJob], Awaitable[object]]:
    step = NewStep(name=name, kind=StepKind.RUN, place=Place("", number), value='{"n": 1}')
    return lambda store, claimed: store.driver.record_step(claimed.token, step)


def said(*lines: str) -> Callable[[Store, ClaimedJob], Awaitable[object]]:
    return lambda store, claimed: store.driver.note([NewNotes(claimed.token, lines, (0.5, "half"))])


def settled(outcome: Any) -> Callable[[Store, ClaimedJob], Awaitable[object]]:
    return lambda store, claimed: store.driver.settle([Settlement(token=claimed.token, outcome=outcome)])


def enqueued(cli: Outlast) -> str:
    job_id: str = cli("jobs", "enqueue", NAME, "--json").document()["id"]
    return job_id


def steps_of(cli: Outlast, job_id: str) -> list[str]:
    return [step["name"] for step in cli("jobs", "show", job_id, "--json").document()["steps"]]


def test_an_event_is_emitted_and_ends_waits(cli: Outlast, database_url: str) -> None:
    job_id = enqueued(cli)
    work(database_url, recorded("load"), settled(Suspended(waits=(WAIT,))))
    shown = cli("jobs", "show", job_id, "--json").document()
    assert (shown["state"], shown["waiting_on"]["event"]) == ("suspended", "order.approved")
    assert [wait["name"] for wait in shown["waits"]] == ["approval"]
    text = cli("jobs", "show", job_id).out
    assert "waits for  event order.approved '7' until " in text
    assert "attempt 1: suspended (not counted)" in text
    emitted = cli("events", "emit", "order.approved", "7", "-P", "by=anna", "-P", "limit:=10", "--json").document()
    assert emitted["matched"] == 1
    shown = cli("jobs", "show", job_id, "--json").document()
    assert (shown["state"], shown["steps"][1]["value"]) == ("ready", {"by": "anna", "limit": 10})
    again = cli("events", "emit", "order.approved", "7")
    assert again.err.strip() == "0 waits ended"
    newest, first = cli("events", "list", "--json").documents()
    assert (newest["id"], newest["payload"], newest["emitted_by"]) == (again.out.strip(), None, "cli")
    assert (first["id"], first["matched"]) == (emitted["id"], 1)
    header, *rows = cli("events", "list", "--name", "order.approved", "--key", "7").out.splitlines()
    assert header.split()[:4] == ["id", "name", "key", "tenant"]
    assert len(rows) == 2
    assert cli("events", "list", "--tenant", "north").err.strip() == "no events"


def test_a_run_is_retried_from_a_step_or_anew(cli: Outlast, database_url: str) -> None:
    job_id = enqueued(cli)
    work(database_url, recorded("load"), recorded("charge", 1), settled(DEAD))
    assert cli("jobs", "retry", job_id, "--from-step", "ship", code=4).err.startswith("error: NOT_FOUND: ")
    both = cli("jobs", "retry", job_id, "--fresh", "--from-step", "charge", code=2)
    assert both.err.startswith("error: REQUEST_INVALID: ")
    retried = cli("jobs", "retry", job_id, "--from-step", "charge", "--json").document()
    assert (retried["state"], steps_of(cli, job_id)) == ("ready", ["load"])
    work(database_url, settled(DEAD))
    fresh = cli("jobs", "retry", job_id, "--fresh", "--json").document()
    assert (fresh["state"], steps_of(cli, job_id)) == ("ready", [])
    assert fresh["run_id"] != retried["run_id"]


def test_a_fork_is_a_new_job(cli: Outlast, database_url: str) -> None:
    job_id = enqueued(cli)
    work(database_url, recorded("load"), recorded("charge", 1), settled(DEAD))
    forked = cli("jobs", "fork", job_id, "--from-step", "charge", "--json").document()
    assert (forked["parent_id"], forked["state"], steps_of(cli, forked["id"])) == (job_id, "ready", ["load"])
    assert "ready" in cli("jobs", "fork", job_id).out
    assert cli("jobs", "fork", job_id, "--from-step", "ship", code=4).err.startswith("error: NOT_FOUND: ")


def test_a_held_job_is_released(cli: Outlast, database_url: str) -> None:
    job_id = enqueued(cli)
    work(database_url, recorded("load"), settled(Held(reason="step 0 is 'load', not 'fetch'")))
    assert "held (step 0 is 'load', not 'fetch')" in cli("jobs", "show", job_id).out
    assert cli("jobs", "retry", job_id, code=5).err.startswith("error: JOB_STATE_CONFLICT: ")
    assert cli("jobs", "release", job_id, "--json").document()["state"] == "ready"
    assert cli("jobs", "release", job_id, code=5).err.startswith("error: JOB_STATE_CONFLICT: ")


def test_lines_are_printed(cli: Outlast, database_url: str) -> None:
    job_id = enqueued(cli)
    work(database_url, said("loaded", "odd \x1b[2J"), settled(Completed(result="1")))
    first, second = cli("jobs", "logs", job_id).out.splitlines()
    assert first.endswith("Z  loaded")
    assert second.endswith("odd \\x1b[2J")
    followed = cli("jobs", "logs", job_id, "-f", "--json").documents()
    assert [line["message"] for line in followed] == ["loaded", "odd \x1b[2J"]


def test_a_job_is_watched_to_its_end(cli: Outlast, database_url: str) -> None:
    job_id = enqueued(cli)
    assert cli("jobs", "watch", job_id, "--timeout", "0.2", code=3).out == "ready\n"
    work(database_url, recorded("load"), said("loaded"), settled(Completed(result="1")))
    assert cli("jobs", "watch", job_id).out.splitlines() == [
        "done",
        "step load: run, attempt 1",
        "log loaded",
        "attempt 1: completed (returned, counted)",
        "progress 50%: half",
        "ended: done",
    ]
    news = cli("jobs", "watch", job_id, "--json").documents()
    assert [one["event"] for one in news] == ["state", "step", "log", "attempt", "progress", "end"]
    assert news[-1]["data"] == {"id": job_id, "state": "done"}
    dead = enqueued(cli)
    work(database_url, settled(DEAD))
    assert cli("jobs", "watch", dead, code=1).out.splitlines()[-1] == "ended: dead"


def test_a_life_is_drawn(cli: Outlast, database_url: str) -> None:
    job_id = enqueued(cli)
    work(database_url, recorded("load"), settled(DEAD))
    cli("jobs", "retry", job_id)
    work(database_url, settled(Completed(result="1")))
    lines = cli("jobs", "show", job_id).out.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("from "))
    drawn = [line.partition("] ")[2].strip() for line in lines[begin + 1 :] if "] " in line]
    assert drawn == [
        "in the queue",
        "attempt 1: dead_lettered (error, counted)",
        "load",
        "in the queue",
        "attempt 2: completed (returned, counted)",
        "load (from the record)",
    ]
    kinds = [span["kind"] for span in cli("jobs", "show", job_id, "--json").document()["spans"]]
    assert kinds == ["queue", "attempt", "step", "queue", "attempt", "replay"]


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        *((("jobs", verb, UNKNOWN), 4, "JOB_NOT_FOUND") for verb in ("fork", "release", "logs", "watch")),
        *((("jobs", verb, "not-an-id"), 4, "JOB_NOT_FOUND") for verb in ("fork", "release", "logs", "watch")),
        (("events", "emit", "Order", "7"), 2, "REQUEST_INVALID"),
        (("events", "emit", "order.approved", " "), 2, "REQUEST_INVALID"),
        (("events", "emit", "order.approved", "7", "--payload", "{NaN"), 1, "JSON_INVALID"),
        (("events", "emit", "order.approved", "7", "--payload", "{}", "-P", "a=1"), 2, "REQUEST_INVALID"),
    ],
)
def test_a_refusal_is_two_lines_and_an_exit_code(words: tuple[str, ...], code: int, error: str, cli: Outlast) -> None:
    ran = cli(*words, code=code)
    cause, fix = ran.err.splitlines()
    assert cause.startswith(f"error: {error}: ")
    assert fix.startswith("  fix: ")
    assert ran.out == ""
