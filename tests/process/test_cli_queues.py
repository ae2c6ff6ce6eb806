"""Queues from the command line."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from app.cli.acting import actor
from tests.process.conftest import Outlast
from tests.support.drivers import new_job
from tests.support.store import store_on

pytestmark = [pytest.mark.postgres]


@pytest.fixture
def cli(outlast: Outlast, database_url: str) -> Outlast:
    """The command on a database with a job in a queue."""

    async def enqueue() -> None:
        async with store_on(database_url) as store:
            await store.driver.enqueue_many([new_job(queue="mail"), new_job(queue="mail", delay=timedelta(hours=1))])

    asyncio.run(enqueue())
    return outlast.on(database_url)


def test_a_queue_is_limited_and_listed(cli: Outlast) -> None:
    assert cli("queues", "set", "mail", "--concurrency", "2", "--max-depth", "10").err.strip() == (
        "mail: runs at most 2, takes in at most 10"
    )
    rows = cli("queues", "list").out.splitlines()
    assert rows[1].split()[:4] == ["mail", "1", "1", "0"]
    assert "runs at most 2, takes in at most 10" in rows[1]
    assert cli("queues", "set", "mail", "--max-depth", "none").err.strip() == "mail: runs at most 2"
    (document,) = cli("queues", "list", "--json").documents()
    assert (document["name"], document["concurrency"], document["max_depth"]) == ("mail", 2, None)


def test_tenants_of_a_queue_take_turns(cli: Outlast) -> None:
    said = cli("queues", "set", "mail", "--fair", "--weight", "acme=3", "--weight", "a=b=2").err.strip()
    assert said == "mail: tenants take turns (a=b 2, acme 3)"
    (document,) = cli("queues", "list", "--json").documents()
    assert (document["is_fair"], document["weights"]) == (True, {"a=b": 2, "acme": 3})
    assert cli("queues", "set", "mail", "--weight", "acme=none", "--weight", "a=b=none").err.strip() == (
        "mail: tenants take turns"
    )
    assert cli("queues", "set", "mail", "--no-fair").err.strip() == "mail: open"


def test_a_queue_is_paused_for_a_while_until_a_time_and_for_good(cli: Outlast) -> None:
    (document,) = cli("queues", "pause", "mail", "--until", "30m", "--reason", "moves", "--json").documents()
    ends = datetime.fromisoformat(str(document["paused_until"]))
    assert timedelta(minutes=28) < ends - datetime.now(UTC) <= timedelta(minutes=30)
    assert document["paused_by"] == actor()
    later = (datetime.now(UTC) + timedelta(days=1)).replace(microsecond=0)
    cli("queues", "pause", "mail", "--until", later.isoformat())
    assert f"paused by {actor()} until {later:%Y-%m-%dT%H:%M:%SZ}" in cli("queues", "list").out
    assert cli("queues", "pause", "mail").err.strip() == f"mail: paused by {actor()}"
    assert cli("queues", "resume", "mail").err.strip() == "mail: open"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("set", "mail"), "--concurrency N"),
        (("set", "mail", "--concurrency", "few"), "--concurrency 10"),
        (("set", "mail", "--weight", "acme"), "--weight TENANT=3"),
        (("set", "mail", "--weight", "acme=1001"), "from 1 to 1000"),
        (("set", "mail", "--concurrency", "0"), "pause the queue"),
        (("pause", "mail", "--until", "tomorrow"), "--until 2026"),
        (("pause", "mail", "--until", "2020-01-01T00:00:00Z"), "in the future"),
        (("pause", "a b"), "lower-case letters"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_is_refused_with_the_repair(cli: Outlast, words: tuple[str, ...], said: str) -> None:
    ran = cli("queues", *words, code=2)
    assert ran.err.startswith("error: REQUEST_INVALID: ")
    assert said in ran.err
