"""`outlast jobs move`: what it counts, moves, refuses and exits with, and that a kill at any instant costs nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from app.domain.moving import REFUSED, Stays
from tests.process.conftest import Outlast
from tests.support.made import new_job
from tests.support.source import CHECKOUT
from tests.support.store import Store, store_on

pytestmark = [pytest.mark.postgres]

_LATER = 1.3  # from one kill to the next


def on(url: str, work: Callable[[Store], Awaitable[Any]]) -> Any:
    """Do something to a store."""

    async def run() -> Any:
        async with store_on(url) as store:
            return await work(store)

    return asyncio.run(run())


def ids_in(url: str, table: str = "job", column: str = "id") -> list[str]:
    rows = on(url, lambda store: store.fetch(f"select {column} as id from outlast.{table}"))
    return [str(row["id"]) for row in rows]


@pytest.fixture
def target(make_database: Callable[..., str]) -> str:
    return make_database()


@pytest.fixture
def cli(outlast: Outlast, database_url: str) -> Outlast:
    """The command on a database with ten jobs in two queues."""
    jobs = [new_job(queue="mail" if number % 2 else "default") for number in range(10)]
    on(database_url, lambda store: store.driver.enqueue_many(jobs))
    return outlast.on(database_url)


def test_jobs_are_counted_and_moved_when_that_is_said(cli: Outlast, database_url: str, target: str) -> None:
    dry = cli("jobs", "move", "--to", target, "--dry-run")
    assert dry.out.split() == ["found", "ready", "10", "found", "delayed", "0", "found", "on_the_way", "0"]
    assert "nothing was moved" in dry.err
    assert ids_in(target) == []
    one = cli("jobs", "move", "--to", target, "--queue", "mail", "--batch", "2", "--json").document()
    assert one == {
        "dry_run": False,
        "is_complete": True,
        "found": {"ready": 5, "delayed": 0, "on_the_way": 0},
        "moved": {"moved": 5, "there": 0},
        "stayed": dict.fromkeys(
            ("running", "suspended", "held", *(why.value for why in Stays), *(verdict.value for verdict in REFUSED)), 0
        ),
    }
    rest = cli("jobs", "move", "--to", target, "--reason", "a bigger machine")
    assert rest.out.split() == ["moved", "moved", "5", "moved", "there", "0"]
    assert (len(ids_in(database_url)), len(ids_in(target))) == (0, 10)
    told = cli("audit", "list", "--action", "store.move", "--json").documents()
    assert [row["reason"] for row in told] == ["a bigger machine"] * 2 + [None] * 2
    assert told[0]["details"]["to"].endswith(urlsplit(target).path)


def test_a_key_that_is_taken_there_is_said_and_fails(cli: Outlast, database_url: str, target: str) -> None:
    for url in (database_url, target):
        on(url, lambda store: store.driver.enqueue(new_job(key="k")))
    ran = cli("jobs", "move", "--to", target, code=1)
    assert "stays key_taken    1  each has an idempotency key that another job holds in the target" in ran.out
    assert len(ids_in(database_url)) == 1


@pytest.mark.parametrize(
    ("to", "code", "words"),
    [
        ("memory://", 1, ("DRIVER_VOLATILE", "memory://", "give the address of a PostgreSQL database")),
        ("redis://there", 64, ("NOT_IMPLEMENTED", "redis://")),
        ("postgresql://127.0.0.1:1/none", 69, ("DRIVER_UNAVAILABLE",)),
    ],
)
def test_a_target_that_cannot_be_is_refused(
    cli: Outlast, database_url: str, to: str, code: int, words: tuple[str, ...]
) -> None:
    ran = cli("jobs", "move", "--to", to, code=code)
    assert all(word in ran.err for word in words), ran.err
    assert len(ids_in(database_url)) == 10


def test_the_database_itself_is_refused(cli: Outlast, database_url: str) -> None:
    ran = cli("jobs", "move", "--to", database_url, code=2)
    assert "the target is the database that the jobs are in" in ran.err
    assert len(ids_in(database_url)) == 10


@pytest.mark.timeout(90)
def test_killed_again_and_again_it_moves_each_job_once(database_url: str, target: str) -> None:
    """SIGKILL at instants that are a little later each time, until one run comes to its end."""
    jobs = [new_job() for _ in range(3_000)]
    on(database_url, lambda store: store.driver.enqueue_many(jobs))
    command = [sys.executable, "-m", "app", "jobs", "move", "--to", target, "--batch", "20", "--json"]
    env = {**os.environ, "OUTLAST_DATABASE_URL": database_url}
    seconds, killed = 0.8, 0
    while True:
        try:
            done = subprocess.run(command, cwd=CHECKOUT, env=env, capture_output=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:  # by SIGKILL
            killed, seconds = killed + 1, seconds * _LATER
            continue
        assert done.returncode == 0, done.stderr
        break
    assert killed >= 1
    assert sorted(ids_in(target)) == sorted(str(job.id) for job in jobs)
    assert len(set(ids_in(target, "ready", "job_id"))) == len(jobs)
    assert ids_in(database_url) == ids_in(database_url, "moving") == []
