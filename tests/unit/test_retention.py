"""How long things are kept: what cannot work is refused with the arithmetic, and a job type's own time wins."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from app.bootstrap import build_retention, build_worker, quiet_telemetry
from app.cli.durations import duration
from app.domain.errors import RequestInvalid, SettingsInvalid
from app.domain.retention import Chore, EndedRule, Retention, TableRule
from app.domain.snapshot import JobTypeDoc
from app.domain.state import TERMINAL, State
from app.drivers.memory.driver import MemoryDriver
from app.jobs import Registry, describe, job, purge
from app.jobs.describe import published_retentions
from app.jobs.policy import JobPolicy
from app.settings import Settings

DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"done": 91 * DAY}, "less than the 91 days"),
        ({"dead": 91 * DAY}, "less than the 91 days"),
        ({"source": 89 * DAY}, "may be published again"),
    ],
)
def test_a_source_that_would_be_forgotten_before_its_job_is_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(SettingsInvalid, match=why) as caught:
        Retention(**fields)
    assert "OUTLAST_SOURCE_RETENTION_DAYS" in caught.value.fix


def test_a_source_as_long_as_its_job_is_enough() -> None:
    assert Retention(done=91 * DAY, dead=120 * DAY, source=120 * DAY).kept(Chore.SOURCES) == 31 * DAY
    assert Retention(source=90 * DAY, dead=90 * DAY).kept(Chore.SOURCES) == DAY


def test_settings_are_refused_at_the_start_by_their_names() -> None:
    with pytest.raises(SettingsInvalid, match="SOURCE_RETENTION_DAYS=90") as caught:
        Settings.read(retention_dead_days=100)
    assert "set it to 100 or more" in caught.value.cause
    with pytest.raises(SettingsInvalid, match="OUTLAST_SOURCE_RETENTION_DAYS"):
        Settings.read(source_retention_days=89)
    given = build_retention(Settings.read(retention_done_days=0.5, retention_dead_days=100, source_retention_days=100))
    assert (given.done, given.dead, given.source) == (timedelta(hours=12), 100 * DAY, 100 * DAY)


def test_a_worker_does_not_start_with_a_job_type_that_outlives_its_sources(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "from datetime import timedelta\nfrom app.jobs import job\n\n\n"
    module += '@job("long.kept", retention=timedelta(days=91))\nasync def kept() -> None: ...\n'
    (tmp_path / "jobs_kept_long.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    settings = Settings.read(jobs="jobs_kept_long")
    with pytest.raises(SettingsInvalid, match=r"'long\.kept' keeps its jobs for 91 days"):
        build_worker(settings, MemoryDriver(), quiet_telemetry(), on_drain_asked=print)
    long = Settings.read(jobs="jobs_kept_long", source_retention_days=91)
    assert build_worker(long, MemoryDriver(), quiet_telemetry(), on_drain_asked=print).name == "worker"


def test_a_job_types_retention_is_published_and_read_back() -> None:
    @job("kept.long", retention=40 * DAY)
    async def kept() -> None: ...

    @job("kept.usual")
    async def usual() -> None: ...

    docs = [
        JobTypeDoc(name=handle.name, code_version="1", document=json.dumps(describe(handle)))
        for handle in (kept, usual)
    ]
    docs += [JobTypeDoc(name="of.others", code_version="1", document=text) for text in ("{}", "[]", '{"policy": 3}')]
    assert published_retentions(docs) == {"kept.long": 40 * DAY}
    assert Registry([kept, usual]).retentions == {"kept.long": 40 * DAY}


@pytest.mark.parametrize("wrong", [timedelta(), -DAY, 0, 7, "7d", 4000 * DAY])
def test_a_retention_that_cannot_work_is_refused(wrong: Any) -> None:
    with pytest.raises(SettingsInvalid, match="retention="):
        JobPolicy(retention=wrong)
    with pytest.raises(SettingsInvalid, match="older_than="):
        purge("visits", older_than=wrong)


def test_a_job_types_own_time_stands_for_all_its_ends() -> None:
    rule = EndedRule(done=7 * DAY, dead=30 * DAY, by_name={"a": DAY})
    assert [rule.kept("a", state) for state in sorted(TERMINAL)] == [DAY] * 3
    assert [rule.kept("b", state) for state in (State.DONE, State.CANCELLED, State.DEAD)] == [
        7 * DAY,
        7 * DAY,
        30 * DAY,
    ]
    assert rule.shortest == DAY


def test_a_rule_never_names_living_jobs() -> None:
    assert EndedRule.older_than(DAY, states=frozenset(State)).states == TERMINAL


@pytest.mark.parametrize("table", ["", "a.b.c", "visits; drop table x", 'vi"sits', "1st", "a" * 64, ".visits"])
def test_a_table_must_be_named_by_identifiers(table: Any) -> None:
    with pytest.raises(SettingsInvalid, match="cannot be the name of a table"):
        purge(table, older_than=DAY)


@pytest.mark.parametrize("column", ["", "a.b", "at)"])
def test_a_column_must_be_named_by_an_identifier(column: Any) -> None:
    with pytest.raises(SettingsInvalid, match="cannot be the name of a column"):
        purge("visits", older_than=DAY, column=column)


def test_tables_are_taken_into_the_registry_once() -> None:
    visits, same, other = (purge("visits", older_than=each * DAY) for each in (1, 1, 2))
    assert Registry([visits, same, purge("audit.pages", older_than=DAY)]).tables == (
        TableRule(table="audit.pages", older_than=DAY),
        visits,
    )
    with pytest.raises(SettingsInvalid, match="two rules"):
        Registry([visits, other])


@pytest.mark.parametrize(
    ("text", "expected"), [("30d", 30 * DAY), ("12h", DAY / 2), ("1.5d", 1.5 * DAY), ("90s", timedelta(seconds=90))]
)
def test_an_age_names_its_unit(text: str, expected: timedelta) -> None:
    assert duration(text) == expected


@pytest.mark.parametrize("text", ["30", "d", "-3d", "3 days", "1e3d", "9999999d"])
def test_an_age_without_a_unit_is_refused(text: str) -> None:
    with pytest.raises(RequestInvalid):
        duration(text)
