"""`outlast jobs … --state …` and `outlast bulk`: counted, confirmed, worked off, followed, left to others, aborted."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from app.domain.bulk import BulkAction
from app.domain.state import State
from tests.process.conftest import Outlast
from tests.support.bulk import a_bulk
from tests.support.made import new_job
from tests.support.source import CHECKOUT
from tests.support.store import Store, store_on

pytestmark = [pytest.mark.postgres]

T = TypeVar("T")
UNKNOWN = "0198c0f4-7c1a-7b3e-9a55-3f0a1c2d4e5f"


@pytest.fixture
def cli(outlast: Outlast, database_url: str) -> Outlast:
    """The command on a database with five jobs of one type and one of another."""

    async def fill(store: Store) -> None:
        await store.driver.enqueue_many([new_job() for _ in range(5)] + [new_job("other.job")])

    on_store(database_url, fill)
    return outlast.on(database_url)


def on_store(url: str, verb: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
    async def run() -> T:
        async with store_on(url) as store:
            return await verb(store)

    return asyncio.run(run())


def test_a_dry_run_says_how_many_and_changes_nothing(cli: Outlast) -> None:
    ran = cli("jobs", "cancel", "--name", "demo.job", "--dry-run")
    assert ran.out == "5\n"
    assert ran.err.splitlines() == [
        "only jobs enqueued in the last 7 days: the filter names no time",
        "jobs that would be cancelled:",
    ]
    document = cli("jobs", "cancel", "--name", "demo.job", "--dry-run", "--json").document()
    assert (document["matched"], document["capped"], document["selector"]["filter"]["name"]) == (5, False, "demo.job")
    assert cli("bulk", "list").err == "no bulk operations\n"


def test_many_jobs_are_cancelled_retried_and_deleted_without_a_worker(cli: Outlast) -> None:
    document = cli("jobs", "cancel", "--name", "demo.job", "--yes", "--reason", "moved", "--json").document()
    assert (document["state"], document["matched"], document["done"], document["reason"]) == ("done", 5, 5, "moved")
    listed = cli("jobs", "list", "--state", "cancelled", "--json").documents()
    assert {job["state_reason"] for job in listed} == {"moved"}
    assert cli("jobs", "retry", "--state", "cancelled", "--yes").out.endswith(
        "retry  done  5 done, 0 changed since, 0 failed, 0 left of 5\n"
    )
    cli("jobs", "cancel", "--state", "ready", "--yes")
    cli("jobs", "delete", "--state", "cancelled", "--queue", "default", "--yes")
    assert cli("jobs", "list", "--json").documents() == []
    header, *rows = cli("bulk", "list").out.splitlines()
    assert header.split() == ["id", "action", "state", "by", "jobs", "done", "changed", "failed", "created"]
    assert [row.split()[1] for row in rows] == ["delete", "cancel", "retry", "cancel"]


def test_nobody_to_ask_is_a_refusal(cli: Outlast) -> None:
    ran = cli("jobs", "cancel", "--state", "ready", code=2)
    assert "6 jobs would be cancelled, and there is nobody to ask" in ran.err
    assert cli("jobs", "cancel", "--state", "delayed").err.splitlines()[-1] == "no jobs to be cancelled"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("jobs", "cancel"), 2, "no job is named"),
        (("jobs", "retry", UNKNOWN, "--state", "dead"), 2, "exclude each other"),
        (("jobs", "retry", "--state", "ready", "--yes"), 2, "retry does nothing to ready jobs"),
        (("jobs", "retry", "--state", "dead", "--fresh"), 2, "from where they are"),
        (("jobs", "cancel", "--since", "yesterday"), 2, "is no time"),
        (("bulk", "show", UNKNOWN), 4, "there is no bulk operation"),
        (("bulk", "abort", "x"), 4, "there is no bulk operation"),
    ],
)
def test_what_makes_no_sense_is_refused(cli: Outlast, words: tuple[str, ...], code: int, said: str) -> None:
    assert said in cli(*words, code=code).err


def test_jobs_that_failed_are_shown_and_the_exit_code_says_so(cli: Outlast, database_url: str) -> None:
    async def duplicated(store: Store) -> None:
        first = new_job("third.job", key="k")
        await store.driver.enqueue(first)
        await store.driver.cancel(first.id, reason="again")
        await store.driver.enqueue(new_job("third.job", key="k"))

    on_store(database_url, duplicated)
    ran = cli("jobs", "retry", "--name", "third.job", "--yes", code=1)
    assert "holds its idempotency key" in ran.out
    bulk_id = ran.out.split()[0]
    (operation, item) = cli("bulk", "show", bulk_id, "--verdict", "failed", "--json").documents()
    assert operation["failed"] == 1
    assert (item["verdict"], item["code"]) == ("failed", "JOB_DUPLICATE")
    assert "JOB_DUPLICATE" in cli("bulk", "show", bulk_id, "--verdict", "failed").out


def test_an_operation_is_followed_and_aborted(cli: Outlast, database_url: str) -> None:
    async def made(store: Store) -> str:
        return str((await store.driver.bulk.make(a_bulk(BulkAction.CANCEL, State.READY, name="demo.job"))).id)

    first = on_store(database_url, made)
    assert cli("bulk", "follow", first, "--json").document()["done"] == 5
    second = on_store(database_url, made_over_other)
    aborted = cli("bulk", "abort", second, "--reason", "not this one", "--json").document()
    assert (aborted["state"], aborted["left"]) == ("aborted", 1)
    assert cli("bulk", "follow", second, code=1).out.split()[2] == "aborted"


async def made_over_other(store: Store) -> str:
    return str((await store.driver.bulk.make(a_bulk(BulkAction.CANCEL, name="other.job"))).id)


@pytest.mark.timeout(60)
def test_ctrl_c_leaves_the_operation_to_the_workers_and_says_how_to_go_on(cli: Outlast, database_url: str) -> None:
    """A job that somebody holds keeps the operation from its end."""

    async def interrupted(store: Store) -> tuple[int, str, str]:
        async with store.driver._db.raw() as conn, conn.transaction():
            await conn.execute(
                "set local idle_in_transaction_session_timeout = 0"
            )  # as long as a process takes to start
            await conn.execute("select from outlast.ready for update")
            words = [sys.executable, "-m", "app", "jobs", "cancel", "--state", "ready", "--yes", "--db", database_url]
            process = subprocess.Popen(  # noqa: ASYNC220  the test waits for what it does
                words, cwd=CHECKOUT, env=os.environ | {"PYTHONUNBUFFERED": "1"}, stderr=subprocess.PIPE, text=True
            )
            async with asyncio.timeout(40):
                while not await conn.fetch("select from outlast.bulk_item where round > 0"):
                    await asyncio.sleep(0.02)
            process.send_signal(signal.SIGINT)
            _, err = await asyncio.to_thread(process.communicate, timeout=15)
        (row,) = await store.fetch("select id, state from outlast.bulk")
        return process.returncode, err, f"{row['state']} {row['id']}"

    code, err, kept = on_store(database_url, interrupted)
    assert code == 130
    state, bulk_id = kept.split()
    assert state == "0"
    assert re.search(rf"`outlast bulk follow {bulk_id}` .*`outlast bulk abort {bulk_id}`", err), err
    assert cli("bulk", "follow", bulk_id, "--json").document()["done"] == 6
