"""`outlast jobs`: what it prints, and what it exits with."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import uuid4

import pytest

from app.domain.job import ClaimedJob, WorkerId
from app.domain.outcome import Completed, DeadLettered, ErrorInfo, Outcome, Settlement
from app.domain.snapshot import NewWorker
from app.domain.state import DeadReason
from app.drivers.protocol import ClaimRequest, QueueShare
from tests.process.conftest import Outlast
from tests.support.store import Store, store_on

pytestmark = [pytest.mark.postgres]

NAME = "faults.hold"
UNKNOWN = "0198c0f4-7c1a-7b3e-9a55-3f0a1c2d4e5f"
DEAD = DeadLettered(error=ErrorInfo(type="ValueError", message="no \x1b[2J shop"), reason=DeadReason.TERMINAL)


@pytest.fixture
def cli(outlast: Outlast, database_url: str) -> Outlast:
    """The command on a database that knows the tests' job types."""

    async def publish() -> None:
        async with store_on(database_url) as store:
            await store.publish()

    asyncio.run(publish())
    return outlast.on(database_url)


def end(url: str, outcome: Outcome) -> None:
    """Claim the one job that is ready and settle it."""

    async def work() -> None:
        async with store_on(url) as store:
            token = (await _claim(store)).token
            await store.driver.settle([Settlement(token=token, outcome=outcome)])

    asyncio.run(work())


async def _claim(store: Store) -> ClaimedJob:
    fields: dict[str, Any] = {"host": "h", "pid": 1, "code_version": "1", "queues": ("default",), "concurrency": 1}
    worker: WorkerId = await store.driver.register_worker(NewWorker(boot_id=uuid4(), lease_ms=60_000, **fields))
    shares = (QueueShare(queue="default", room=1),)
    request = ClaimRequest(worker_id=worker, shares=shares, names=store.registry.names, room=1)
    (claimed,) = await store.driver.claim(request)
    return claimed


def test_a_job_is_enqueued_listed_shown_cancelled_and_retried(cli: Outlast) -> None:
    job = cli("jobs", "enqueue", NAME, "--payload", '{"gate": "a",  "epochs": 1e0}', "--json").document()
    assert (job["name"], job["state"], job["queue"], job["enqueued_by"]) == (NAME, "ready", "default", "cli")
    shown = cli("jobs", "show", job["id"], "--json")
    assert '{"gate": "a",  "epochs": 1e0}' in shown.out, "the payload comes back byte for byte"
    assert shown.document()["attempts"] == []
    (listed,) = cli("jobs", "list", "--state", "ready", "--name", NAME, "--json").documents()
    assert listed["id"] == job["id"]
    assert "payload" not in listed
    assert cli("jobs", "list", "--state", "dead", "--json").documents() == []
    cancelled = cli("jobs", "cancel", job["id"], "--reason", "by hand", "--json")
    assert cancelled.err.strip() == "cancelled_before_start"
    assert (cancelled.document()["state"], cancelled.document()["state_reason"]) == ("cancelled", "by hand")
    assert cancelled.document()["verdict"] == "cancelled_before_start"
    again = cli("jobs", "cancel", job["id"])
    assert again.err.strip() == "already_finished"
    assert cli("jobs", "retry", job["id"], "--json").document()["state"] == "ready"
    assert cli("jobs", "retry", job["id"], code=5).err.startswith("error: JOB_STATE_CONFLICT: ")


def test_tables_are_for_people(cli: Outlast) -> None:
    cli("jobs", "enqueue", NAME, "--delay", "3600", "--queue", "slow", "--priority", "2")
    header, row = cli("jobs", "list").out.splitlines()
    assert header.split() == ["id", "name", "queue", "state", "reason", "attempt", "created"]
    assert row.split()[1:6] == [NAME, "slow", "delayed", "scheduled", "0/3"]
    text = cli("jobs", "show", row.split()[0]).out
    assert "delayed (scheduled)" in text
    assert "slow, priority 2" in text


def test_a_payload_is_given_in_fields(cli: Outlast) -> None:
    shown = cli("jobs", "enqueue", NAME, "-P", "gate=a=b", "-P", "epochs:=7", "-P", "heed:=false", "--json")
    assert shown.document()["payload"] == {"gate": "a=b", "epochs": 7, "heed": False}
    cli("jobs", "enqueue", NAME, "-P", "gate", code=2)
    cli("jobs", "enqueue", NAME, "-P", "gate=a", "--payload", "{}", code=2)


def test_a_failure_is_shown_with_its_error_and_cannot_steer_the_terminal(cli: Outlast, database_url: str) -> None:
    job = cli("jobs", "enqueue", NAME, "--json").document()
    end(database_url, DEAD)
    text = cli("jobs", "show", job["id"]).out
    assert "dead (terminal)" in text
    assert "no \\x1b[2J shop" in text
    assert "attempt 1" in text
    (attempt,) = cli("jobs", "show", job["id"], "--json").document()["attempts"]
    assert (attempt["outcome"], attempt["counted"]) == ("dead_lettered", True)


def test_waiting_exits_with_what_became_of_the_job(cli: Outlast, database_url: str) -> None:
    assert cli("jobs", "enqueue", NAME, "--wait", "0.1", "--json", code=3).document()["state"] == "ready"
    end(database_url, Completed(result="1"))
    cli("jobs", "enqueue", NAME, "--key", "k")
    end(database_url, DEAD)
    assert cli("jobs", "enqueue", NAME, "--key", "k2").code == 0
    end(database_url, Completed(result='{"n":1}'))
    jobs = cli("jobs", "list", "--json").documents()
    assert sorted(job["state"] for job in jobs) == ["dead", "done", "done"]


def test_a_taken_key_gives_the_job_that_holds_it_or_a_conflict(cli: Outlast) -> None:
    first = cli("jobs", "enqueue", NAME, "--key", "order:7", "--json").document()
    second = cli("jobs", "enqueue", NAME, "--key", "order:7", "--json")
    assert second.document()["id"] == first["id"]
    assert (first["deduped"], second.document()["deduped"]) == (False, True)
    assert f"the key is held by {first['id']}" in second.err
    mismatch = cli("jobs", "enqueue", NAME, "--key", "order:7", "-P", "gate=other", code=5)
    assert mismatch.err.startswith("error: IDEMPOTENCY_MISMATCH: ")
    cli("jobs", "cancel", first["id"])
    cli("jobs", "enqueue", NAME, "--key", "order:7")
    assert cli("jobs", "retry", first["id"], code=5).err.startswith("error: JOB_DUPLICATE: ")


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("jobs", "show", UNKNOWN), 4, "JOB_NOT_FOUND"),
        (("jobs", "show", "not-an-id"), 4, "JOB_NOT_FOUND"),
        (("jobs", "cancel", UNKNOWN), 4, "JOB_NOT_FOUND"),
        (("jobs", "retry", UNKNOWN), 4, "JOB_NOT_FOUND"),
        (("jobs", "enqueue", "no.such.job"), 4, "JOB_UNKNOWN"),
        (("jobs", "enqueue", NAME, "--payload", '{"epochs": "many"}'), 1, "PAYLOAD_INVALID"),
        (("jobs", "enqueue", NAME, "--payload", '{"a": 1, "a": 2}'), 1, "JSON_INVALID"),
        (("jobs", "enqueue", NAME, "--payload", "{NaN"), 1, "JSON_INVALID"),
    ],
)
def test_a_refusal_is_two_lines_and_an_exit_code(words: tuple[str, ...], code: int, error: str, cli: Outlast) -> None:
    ran = cli(*words, code=code)
    cause, fix = ran.err.splitlines()
    assert cause.startswith(f"error: {error}: ")
    assert fix.startswith("  fix: ")
    assert ran.out == ""


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "list", "--state", "sleeping"),
        ("jobs", "list", "--limit", "0"),
        ("jobs", "list", "--limit", "201"),
        ("jobs", "enqueue"),
        ("jobs", "enqueue", NAME, "--priority", "10"),
        ("jobs", "show"),
        ("jobs", "nothing"),
        ("nothing",),
        ("jobs", "list", "--nothing"),
    ],
)
def test_wrong_usage_exits_with_2(words: tuple[str, ...], outlast: Outlast) -> None:
    ran = outlast(*words, code=2)
    assert ran.out == ""
    assert "Usage:" in ran.err


def test_json_is_one_document_a_line(cli: Outlast) -> None:
    for gate in ("first", "line\nbreak", "zweite Größe"):
        cli("jobs", "enqueue", NAME, "--payload", json.dumps({"gate": gate}))
    lines = cli("jobs", "list", "--json").out.splitlines()
    assert len(lines) == 3
    assert all(json.loads(line)["name"] == NAME for line in lines)
    (newest,) = cli("jobs", "list", "--limit", "1", "--json").documents()
    assert newest == json.loads(lines[0]), "newest first"
