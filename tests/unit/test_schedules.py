"""Schedules as they are declared: what is refused at once, what is published, and what registries make of them."""

from __future__ import annotations

from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel

from app.domain.errors import JobNameTaken, ScheduleInvalid
from app.domain.job import NewJob
from app.jobs import Registry, job, schedule
from app.jobs.admission import Admission
from app.jobs.describe import job_type_docs
from app.jobs.enqueue import request_of
from app.jobs.jobtype import JobTypes
from app.jobs.schedule import ScheduledJob
from tests.support.made import new_id

HOUR = timedelta(hours=1)


class Report(BaseModel):
    shop: str
    rows: int = 10


@job("reports.make", queue="reports", priority=3, tenant="{shop}", idempotency_key="r:{rows}", timeout=HOUR)
async def make_report(payload: Report) -> None: ...


@job("tidy")
async def tidy() -> None: ...


@job("by-callable", idempotency_key=lambda payload: f"k{payload.rows}")
async def by_callable(payload: Report) -> None: ...


def declare(**changes: Any) -> Any:
    given: dict[str, Any] = {"job": tidy, "cron": "0 3 * * *", "tz": "Europe/Berlin", **changes}
    return schedule("nightly", **given)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cron": "0 0 30 2 *"}, "nightly"),
        ({"cron": "1--100000000 * * * *"}, "no cron expression"),
        ({"cron": ["0"]}, "no cron expression"),
        ({"tz": "Mars/Olympus"}, "time zone"),
        ({"tz": None}, "time zone"),
        ({"catch_up": "some"}, "catch_up"),
        ({"overlap": "queue"}, "overlap"),
        ({"max_catch_up": 0}, "max_catch_up"),
        ({"max_catch_up": True}, "max_catch_up"),
        ({"max_catch_up": 101}, "max_catch_up"),
        ({"job": make_report}, "shop"),
        ({"job": make_report, "payload": {"shop": "a", "rows": "many"}}, "/rows"),
        ({"job": make_report, "payload": 7}, "takes Report"),
        ({"job": lambda: None}, "no job"),
        ({"queue": "No Queue"}, "queue"),
        ({"priority": 10}, "priority"),
        ({"delay": -HOUR}, "delay"),
        ({"max_attempts": 26}, "max_attempts"),
        ({"job": make_report, "payload": {"shop": "a"}, "timeout": 2 * HOUR}, "timeout"),
        ({"job": make_report, "payload": {"shop": "a"}, "tenant": "b"}, "tenant"),
        ({"idempotency_key": " "}, "idempotency_key"),
        ({"dedupe_for": HOUR}, "dedupe_for"),
        ({"tags": "one"}, "tags"),
        ({"meta": {"a": object()}}, "meta"),
        ({"colour": "red"}, "colour"),
        ({"run_at": None}, "run_at"),
        ({"session": None}, "session"),
        ({"parent_id": None}, "parent_id"),
    ],
)
def test_what_could_not_work_at_night_is_refused_when_declared(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ScheduleInvalid) as refused:
        declare(**changes)
    assert said in refused.value.cause
    assert refused.value.fix


@pytest.mark.parametrize("name", ["", "Nightly", "a b", 7])
def test_a_name_is_a_name(name: Any) -> None:
    with pytest.raises(ScheduleInvalid):
        schedule(name, job=tidy, cron="@daily", tz="UTC")


EVERY_OPTION: dict[str, Any] = {
    "queue": "other",
    "priority": 1,
    "delay": timedelta(minutes=5),
    "max_attempts": 2,
    "timeout": timedelta(minutes=1),
    "idempotency_key": "one",
    "on_conflict": "error",
    "dedupe_for": HOUR,
    "tags": ["a", "b"],
    "meta": {"ticket": 4711, "who": "zoë"},
    "tenant": "shop-1",
    "enqueued_by": "ada",
}


@pytest.mark.parametrize("options", [{}, EVERY_OPTION, *({name: value} for name, value in EVERY_OPTION.items())])
def test_the_row_of_a_schedule_equals_that_of_a_direct_enqueue(options: dict[str, Any]) -> None:
    if options == {"dedupe_for": HOUR}:
        options = {"dedupe_for": HOUR, "idempotency_key": "one"}
    one_id = new_id()
    admission = Admission(new_id=lambda: one_id)
    payload = Report(shop="shop-1", rows=3)
    declared = schedule("s", job=make_report, cron="@daily", tz="UTC", payload=payload, **options)
    direct = options if "enqueued_by" in options else {**options, "enqueued_by": "schedule:s"}
    wanted = admission.admit(make_report.job_type, request_of(make_report, payload, direct))

    document = declared.declaration(code_version="1").document
    (doc,) = job_type_docs([make_report], code_version="1")
    published = ScheduledJob(name="s", document=document).new_job(JobTypes().of(doc), admission)

    assert declared.new_job(admission) == wanted == published
    assert isinstance(wanted, NewJob)
    assert wanted.tenant == "shop-1"


def test_the_same_code_declares_the_same_bytes_and_any_change_is_another_declaration() -> None:
    first = declare().declaration(code_version="1")
    assert first == declare().declaration(code_version="1")
    others = [
        declare().declaration(code_version="2"),
        declare(cron="0 4 * * *").declaration(code_version="1"),
        declare(tz="UTC").declaration(code_version="1"),
        declare(overlap="skip").declaration(code_version="1"),
        declare(priority=1).declaration(code_version="1"),
    ]
    assert len({first.digest, *(other.digest for other in others)}) == 6


def test_a_registry_takes_schedules_beside_jobs_and_skips_the_rest() -> None:
    module = ModuleType("m")
    nightly = declare()
    vars(module).update(tidy=tidy, again=nightly, nightly=nightly, number=7)
    registry = Registry([tidy, nightly, nightly])
    assert registry.names == {"tidy"}
    assert registry.schedules == (nightly,)


def test_two_schedules_of_one_name_are_refused_naming_both() -> None:
    with pytest.raises(JobNameTaken) as refused:
        Registry([declare(), declare(cron="@daily")])
    assert refused.value.cause.count(__file__) == 2


def test_schedules_are_found_in_modules() -> None:
    registry = Registry.from_modules(["tests.support.jobs_schedules"])
    assert [each.name for each in registry.schedules] == ["every-minute"]


def test_a_published_schedule_that_cannot_be_read_is_refused_with_a_repair() -> None:
    for document in ("", "{}", "[]", "7", '{"job":"a"}'):
        with pytest.raises(ScheduleInvalid):
            _ = ScheduledJob(name="s", document=document).content
