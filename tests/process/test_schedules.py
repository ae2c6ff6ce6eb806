"""Schedules from the command line, and a scheduler as a process."""

from __future__ import annotations

import asyncio

import pytest

from app.drivers.schedules import ScheduleStore, schedules_of
from app.jobs.describe import job_type_docs
from tests.process.conftest import Outlast
from tests.support.jobs_schedules import every_minute, note
from tests.support.processes import Fleet, eventually
from tests.support.store import Store, store_on

pytestmark = [pytest.mark.postgres]

NAME = "every-minute"
_STARTS_SECONDS = 8


def schedules(store: Store) -> ScheduleStore:
    found = schedules_of(store.driver)
    assert found is not None
    return found


@pytest.fixture
def cli(outlast: Outlast, database_url: str) -> Outlast:
    """The command on a database that knows a schedule."""

    async def declare() -> None:
        async with store_on(database_url) as store:
            await store.driver.publish_job_types(job_type_docs([note], code_version="1"))
            await schedules(store).declare([every_minute.declaration(code_version="1")])

    asyncio.run(declare())
    return outlast.on(database_url)


def test_schedules_are_listed_and_their_next_times_shown(cli: Outlast) -> None:
    ran = cli("schedules", "list")
    assert ran.out.splitlines()[1].split()[:8] == [NAME, "*", "*", "*", "*", "*", "UTC", "ticks.note"]
    (document,) = cli("schedules", "list", "--json").documents()
    assert (document["name"], document["is_declared"]) == (NAME, True)
    ran = cli("schedules", "next", NAME, "-n", "3")
    assert ran.out.splitlines()[0] == "Every minute  (* * * * *, UTC)"
    assert len(ran.out.splitlines()) == 4


def test_a_schedule_is_fired_paused_and_resumed(cli: Outlast) -> None:
    job_id = cli("schedules", "trigger", NAME).out.strip()
    (job,) = cli("jobs", "show", job_id, "--json").documents()
    assert (job["name"], job["payload"], job["enqueued_by"]) == ("ticks.note", {"text": "tock"}, f"schedule:{NAME}")
    assert f"fired  {job_id}" in cli("schedules", "next", NAME).out
    cli("schedules", "pause", NAME, "--reason", "moves")
    assert "paused" in cli("schedules", "list").out
    assert "it is paused" in cli("schedules", "next", NAME).err
    cli("schedules", "resume", NAME)
    assert "active" in cli("schedules", "list").out


@pytest.mark.parametrize("words", [("next",), ("trigger",), ("pause",), ("resume",)])
def test_an_unknown_schedule_exits_with_4(cli: Outlast, words: tuple[str, ...]) -> None:
    ran = cli("schedules", *words, "x", code=4)
    assert ran.err.startswith("error: NOT_FOUND: ")


def test_a_preview_needs_no_database(outlast: Outlast) -> None:
    words = ("schedules", "preview", "30 2 * * *", "--tz", "America/New_York", "--after", "2026-03-07T12:00:00Z")
    ran = outlast(*words, "-n", "1")
    assert ran.out.splitlines() == [
        "At 02:30 every day  (30 2 * * *, America/New_York)",
        "2026-03-08T07:00:00Z  2026-03-08T03:00:00-04:00  moved out of skipped time",
    ]
    (document,) = outlast(*words, "--json").documents()
    assert document["fires"][0]["dst"] == "moved"
    for wrong in ("0 0 30 2 *", "* * * *"):
        assert outlast("schedules", "preview", wrong, code=2).err.startswith("error: SCHEDULE_INVALID: ")
    assert outlast("schedules", "preview", "@daily", "--after", "soon", code=2).err.startswith("error: REQUEST_INVALID")


def test_a_declaration_that_cannot_work_stops_the_start_naming_its_line(
    outlast: Outlast, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("declared")
    (folder / "bad_schedules.py").write_text(
        "from app.jobs import job, schedule\n\n@job('a.job')\ndef one() -> None: ...\n\n"
        "bad = schedule('bad', job=one, cron='0 0 30 2 *', tz='UTC')\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("OUTLAST_JOBS", "bad_schedules")
    ran = outlast("scheduler", "--db", "postgresql://nobody@127.0.0.1:1/none", code=64)
    assert ran.err.startswith("error: SCHEDULE_INVALID: ")
    assert "bad_schedules.py:6" in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.process
@pytest.mark.timeout(150)
async def test_a_scheduler_fires_at_the_minute_and_leaves_with_zero(fleet: Fleet, store: Store) -> None:
    await store.clock_before_a_minute(_STARTS_SECONDS)
    scheduler = await fleet.scheduler(OUTLAST_JOBS="tests.support.jobs_schedules").ready()

    async def is_declared() -> bool:
        return bool(await schedules(store).schedules())

    async def has_fired() -> bool:
        return bool((await schedules(store).schedules())[0].occurrences)

    await eventually(is_declared, "the schedule is declared")
    await eventually(has_fired, "a minute is over", within=75)
    (view,) = await schedules(store).schedules()
    (row,) = view.occurrences
    assert (row.at.second, row.at.microsecond) == (0, 0)
    assert (row.decided_at - row.at).total_seconds() < 5
    assert row.at <= await store.driver.database_time()
    metrics = await scheduler.metrics()
    assert metrics[("outlast_schedule_occurrences_total", (("outcome", "fired"), ("schedule", NAME)))] == 1
    assert ("outlast_schedule_lag_seconds", ()) in metrics
    scheduler.terminate()
    assert await scheduler.gone() == 0
    assert scheduler.said("schedule.fired")
    assert scheduler.said("scheduler.stopped")
