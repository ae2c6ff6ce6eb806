"""`outlast purge` and `outlast dead`: what they count, ask, delete and exit with."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.cli import purge as command
from app.control.purge import PurgeStep
from tests.process.conftest import Outlast
from tests.support.store import Store, store_on

pytestmark = [pytest.mark.postgres]

_ENDED = """
with n as (
  select i, (lpad(to_hex((extract(epoch from now() - interval '40 days') * 1000)::bigint), 12, '0') || '7000' || '8000'
    || lpad(to_hex(i), 12, '0'))::uuid as id from generate_series(1, $1::int) i),
j as (
  insert into outlast.job(id, name_id, queue, priority, tenant, payload, max_attempts, max_crashes, created_at)
  select id, (select id from outlast.job_name limit 1), 'default', 5, 'default', '{}', 25, 3, now() - interval '40 days'
  from n)
insert into outlast.finished(job_id, state, attempt, claim_no, crashes, interrupts, finished_at, reason)
select id, $2::smallint, 1, 1, 0, 0, now() - interval '39 days', 'terminal' from n"""
DONE, DEAD = 0, 2


@pytest.fixture
def cli(outlast: Outlast, database_url: str) -> Outlast:
    """The command on a database with job types."""
    on(database_url, lambda store: store.publish())
    return outlast.on(database_url)


def on(url: str, work: Callable[[Store], Awaitable[Any]]) -> Any:
    """Do something to the store."""

    async def run() -> Any:
        async with store_on(url) as store:
            return await work(store)

    return asyncio.run(run())


def pile(url: str, rows: int, state: int) -> None:
    """Let jobs have ended long ago."""
    on(url, lambda store: store.fetch(_ENDED, rows, state))


def left(url: str) -> int:
    return int(on(url, lambda store: store.fetch("select count(*) from outlast.job"))[0][0])


def test_old_jobs_are_counted_and_deleted_when_that_is_said(cli: Outlast, database_url: str) -> None:
    pile(database_url, 2_500, DONE)
    dry = cli("purge", "--older-than", "30d", "--dry-run", "--json").document()
    assert dry == {"dry_run": True, "is_complete": True, "rows": {"jobs": 2_500}}
    asked = cli("purge", "--older-than", "30d", code=2)
    assert left(database_url) == 2_500
    assert "2,500 rows would be deleted" in asked.err
    assert "--yes" in asked.err
    done = cli("purge", "--older-than", "30d", "--yes")
    assert (done.out.split(), left(database_url)) == (["jobs", "2500"], 0)
    assert "nothing is old enough" in cli("purge", "--older-than", "30d", "--yes").err


def test_states_and_names_narrow_it(cli: Outlast, database_url: str) -> None:
    pile(database_url, 3, DEAD)
    assert cli("purge", "--older-than", "30d", "--state", "done", "--yes", "--json").document()["rows"] == {"jobs": 0}
    assert cli("purge", "--older-than", "30d", "--name", "no.such", "--yes", "--json").document()["rows"] == {"jobs": 0}
    both = ("--state", "done", "--state", "dead")
    assert cli("purge", "--older-than", "30d", *both, "--yes", "--json").document()["rows"] == {"jobs": 3}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--older-than", "30"),
        ("--older-than", "30d", "--state", "ready"),
        ("--state", "dead"),
        ("--name", "some.job"),
    ],
)
def test_what_cannot_be_meant_is_refused(cli: Outlast, arguments: tuple[str, ...]) -> None:
    assert "fix:" in cli("purge", *arguments, code=2).err


def test_without_an_age_everything_goes_whose_retention_is_over(cli: Outlast, database_url: str) -> None:
    pile(database_url, 5, DONE)
    dry = cli("purge", "--dry-run", "--json").document()
    assert dry["rows"] == {
        "jobs": 5,
        "keys": 0,
        "sources": 0,
        "events": 0,
        "deliveries": 0,
        "drains": 0,
        "workers": 0,
        "audit": 0,
        "requests": 0,
    }
    assert cli("purge", "--yes", "--json").document()["rows"]["jobs"] == 5
    assert left(database_url) == 0


def test_dead_letters_are_listed_and_purged(cli: Outlast, database_url: str) -> None:
    assert "no dead letters" in cli("dead", "list").err
    pile(database_url, 3, DEAD)
    (group,) = cli("dead", "list", "--json").documents()
    assert (group["count"], group["reason"]) == (3, "terminal")
    assert cli("dead", "list").out.splitlines()[1].startswith("3 ")
    assert cli("dead", "purge", "--older-than", "40d", "--yes", "--json").document()["rows"] == {"jobs": 0}
    assert cli("dead", "purge", "--older-than", "38d", "--dry-run", "--json").document()["rows"] == {"jobs": 3}
    assert cli("dead", "purge", "--older-than", "38d", "--yes", "--json").document()["rows"] == {"jobs": 3}
    assert left(database_url) == 0


async def test_ctrl_c_ends_it_after_the_step_in_flight(capsys: pytest.CaptureFixture[str]) -> None:
    async def steps() -> Any:
        yield PurgeStep("jobs", 1000, 7)
        signal.raise_signal(signal.SIGINT)
        while signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            await asyncio.sleep(0)  # until the command has heard of it
        yield PurgeStep("jobs", 1000, 5)
        raise AssertionError("another step was taken")

    counts, is_cut = await command._followed(steps(), "deleted")
    assert (dict(counts), is_cut) == ({"jobs": 12}, True)
    assert "Ctrl-C again" in capsys.readouterr().err


def test_progress_says_rate_and_time_left() -> None:
    assert command._progress(2_000, 4.0, "deleted", 10_000) == "deleted 2,000 of 10,000, 500/s, 16 s left"
    assert command._progress(2_000, 4.0, "counted", None) == "counted 2,000, 500/s"
    assert command._progress(0, 0.0, "deleted", 10) == "deleted 0 of 10, 0/s"


def test_dead_letters_of_one_error_are_retried(cli: Outlast, database_url: str) -> None:
    """However old they are, and those of another error are left."""
    pile(database_url, 3, DEAD)
    (group,) = cli("dead", "list", "--json").documents()
    name = group["name"]
    assert "no dead letters like that" in cli("dead", "retry", name, "--error", "KeyError", "--yes").err
    assert cli("dead", "retry", name, "--dry-run").out.split() == ["3"]
    assert "nobody to ask" in cli("dead", "retry", name, code=2).err
    assert "3 done" in cli("dead", "retry", name, "--yes").out
    assert cli("dead", "list", "--json").documents() == []
