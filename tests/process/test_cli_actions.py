"""The command line of operators: what it does, asks, prints and exits with, and what the audit keeps of it."""

from __future__ import annotations

import asyncio
import getpass

import pytest

from tests.process.conftest import Outlast
from tests.support.store import store_on

pytestmark = [pytest.mark.postgres]

NAME = "faults.hold"
UNKNOWN = "0198c0f4-7c1a-7b3e-9a55-3f0a1c2d4e5f"


@pytest.fixture
def cli(outlast: Outlast, database_url: str) -> Outlast:
    """The command on a database that knows the tests' job types."""

    async def publish() -> None:
        async with store_on(database_url) as store:
            await store.publish()

    asyncio.run(publish())
    return outlast.on(database_url)


def test_a_job_is_changed_as_it_was_seen(cli: Outlast) -> None:
    job = cli("jobs", "enqueue", NAME, "--json").document()
    changed = cli(
        "jobs", "set", job["id"], "--priority", "1", "--tag", "a", "--tag", "b", "--max-attempts", "9", "--json"
    )
    document = changed.document()
    assert (document["priority"], document["tags"], document["max_attempts"]) == (1, ["a", "b"], 9)
    stale = cli("jobs", "set", job["id"], "--no-tags", "--if-match", job["version"], code=5)
    assert stale.err.startswith("error: PRECONDITION_FAILED: ")
    later = ("--run-at", "2030-01-01T00:00:00Z", "--no-tags", "--if-match", document["version"], "--json")
    document = cli("jobs", "set", job["id"], *later).document()
    assert (document["state"], document["run_at"], document["tags"]) == ("delayed", "2030-01-01T00:00:00Z", [])


def test_a_job_is_let_go_duplicated_and_deleted(cli: Outlast) -> None:
    job = cli("jobs", "enqueue", NAME, "-P", "gate=a", "--delay", "3600", "--json").document()
    let_go = cli("jobs", "run-now", job["id"], "--reason", "the customer waits", "--json")
    assert (let_go.err.strip(), let_go.document()["state"]) == ("made_ready", "ready")
    new = cli("jobs", "duplicate", job["id"], "-P", "gate=b", "--json").document()
    assert (new["payload"], new["parent_id"]) == ({"gate": "b"}, job["id"])
    cli("jobs", "cancel", job["id"])
    assert cli("jobs", "delete", job["id"], code=2).err.startswith("error: REQUEST_INVALID: ")
    assert "is deleted" in cli("jobs", "delete", job["id"], "--yes", "--reason", "a test").err
    assert cli("jobs", "delete", new["id"], "--yes", code=5).err.startswith("error: JOB_STATE_CONFLICT: ")


def test_the_audit_tells_who_did_what_and_why(cli: Outlast) -> None:
    job = cli("jobs", "enqueue", NAME, "--json").document()
    cli("jobs", "cancel", job["id"], "--reason", "by hand")
    cli("jobs", "retry", job["id"])
    rows = cli("audit", "list", "--target", job["id"], "--json").documents()
    assert [(row["action"], row["reason"]) for row in rows] == [("job.retry", None), ("job.cancel", "by hand")]
    assert {row["actor"] for row in rows} == {f"cli:{getpass.getuser()}"}
    header, *lines = cli("audit", "list", "--action", "job.cancel").out.splitlines()
    assert header.split() == ["at", "actor", "action", "target", "outcome", "reason"]
    assert len(lines) == 1
    assert lines[0].endswith("by hand")


@pytest.mark.parametrize(
    "arguments",
    [
        ("set", UNKNOWN),
        ("set", UNKNOWN, "--tag", "a", "--no-tags"),
        ("set", UNKNOWN, "--run-at", "tomorrow"),
        ("set", UNKNOWN, "--run-at", "2026-01-01T00:00:00"),
        ("set", UNKNOWN, "--run-at", "2041-01-01T00:00:00Z"),
        ("set", UNKNOWN, "--priority", "10"),
        ("run-now", UNKNOWN, "--reason", " "),
    ],
)
def test_what_does_not_fit_is_refused(cli: Outlast, arguments: tuple[str, ...]) -> None:
    cli("jobs", *arguments, code=2)


def test_what_is_not_there_is_not_found(cli: Outlast) -> None:
    for verb in ("run-now", "duplicate"):
        cli("jobs", verb, UNKNOWN, code=4)
    cli("jobs", "set", UNKNOWN, "--priority", "1", code=4)
    cli("jobs", "delete", UNKNOWN, "--yes", code=4)
    assert cli("audit", "list").err.strip() == "nobody did anything like that"
