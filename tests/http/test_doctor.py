"""The doctor over HTTP: what it answers, to whom, and in what time where the store says nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest

from app.control.doctor.checks import CHECKS
from app.control.doctor.doctor import Bounds, Doctor
from app.control.doctor.finding import Level, Surroundings
from app.drivers.outbox import outbox_of
from app.drivers.protocol import JobDriver
from app.http.patience import ANSWER_SECONDS
from tests.http.api import Api, code_of
from tests.http.test_openapi import OPERATIONS, check
from tests.roles.harness import Flaky, Gate

NOTHING = Surroundings(pool_size=4, drain=timedelta(seconds=25))
MOMENT = timedelta(milliseconds=20)
HOUR = timedelta(hours=1)


async def test_the_doctor_answers_as_it_is_documented(each_api: Api) -> None:
    response = await each_api.client.get("/v1/doctor")
    found = response.json()
    check(OPERATIONS["examineService"]["responses"]["200"]["content"]["application/json"]["schema"], found)
    assert [one["code"] for one in found["checks"]] == [check.code for check in CHECKS]
    levels = {one["code"]: one["level"] for one in found["checks"]}
    assert found["status"] == ("fail" if "fail" in levels.values() else "warn")
    assert levels["modules"] == levels["ports"] == "skip", "a service imports no handlers"
    # Of the job type that the service publishes there is no worker.
    assert levels["job_types"] == "warn"


async def test_a_store_that_is_away_is_an_answer(api: Api) -> None:
    await api.env.driver.close()
    response = await api.client.get("/v1/doctor")
    assert (response.status_code, response.json()["status"]) == (200, "fail")
    assert response.json()["checks"][0]["fix"]


async def test_only_operators_ask_the_doctor(locked: Api) -> None:
    async with locked.client_with({}) as stranger:
        assert code_of(await stranger.get("/v1/doctor")) == (401, "UNAUTHENTICATED")
    assert (await locked.client.get("/v1/doctor")).status_code == 200


async def test_callers_who_ask_together_are_answered_by_one_examination(api: Api) -> None:
    driver = Flaky(api.env.driver)
    gate = Gate(driver, "vitals")
    bounds = Bounds(vitals=HOUR, whole=HOUR, turn=HOUR)
    doctor = _doctor(api, driver, bounds=bounds)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(doctor.examine())
        await gate.entered.wait()
        others = [group.create_task(doctor.examine()) for _ in range(5)]
        await asyncio.sleep(0)  # they have asked
        gate.go_on.set()
    # The first was under way when the others asked; they share the next.
    assert first.result() not in [other.result() for other in others]
    assert len({id(other.result()) for other in others}) == 1
    assert driver.calls.count("vitals") == 2


async def test_who_waited_long_takes_what_the_examination_under_way_found(api: Api) -> None:
    """Its own would come after the time that a request has."""
    driver, seconds = Flaky(api.env.driver), [1.0]
    gate = Gate(driver, "vitals")
    doctor = _doctor(api, driver, bounds=Bounds(vitals=HOUR, whole=HOUR), monotonic=lambda: seconds[0])
    async with asyncio.TaskGroup() as group:
        first = group.create_task(doctor.examine())
        await gate.entered.wait()
        other = group.create_task(doctor.examine())
        await asyncio.sleep(0)  # it has asked
        seconds[0] += 0.6
        gate.go_on.set()
    assert other.result() is first.result()
    seconds[0] += 0.1
    assert await doctor.examine() is not first.result(), "nobody was waited for"


@pytest.mark.parametrize(
    ("verb", "bounds"),
    [
        ("vitals", Bounds(vitals=MOMENT, whole=HOUR)),
        ("queues", Bounds(whole=MOMENT)),
    ],
)
async def test_a_store_that_says_nothing_is_a_finding(api: Api, verb: str, bounds: Bounds) -> None:
    driver = Flaky(api.env.driver)
    Gate(driver, verb)
    finding = (await _doctor(api, driver, bounds=bounds).examine()).results[0].finding
    assert (finding.level, "did not answer" in finding.text) == (Level.FAIL, True)
    assert "connections to spare" in (finding.fix or "")


async def test_an_outbox_that_says_nothing_is_a_finding_of_its_own(api: Api) -> None:
    outbox = Flaky(cast("JobDriver", outbox_of(api.env.driver)))
    Gate(outbox, "view")
    doctor = _doctor(api, Flaky(api.env.driver), outbox=outbox, bounds=Bounds(whole=timedelta(seconds=1)))
    levels = {result.check.code: result.finding.level for result in (await doctor.examine()).results}
    assert (levels["queues"], levels["outbox"]) == (Level.OK, Level.FAIL)


def test_an_examination_ends_before_the_answer_is_due() -> None:
    """With a turn that another's takes; parts that come after one another leave time for what comes after them."""
    bounds = Bounds()
    assert bounds.turn + bounds.whole < timedelta(seconds=ANSWER_SECONDS)
    assert bounds.vitals + bounds.hearing < bounds.whole
    assert bounds.vitals < timedelta(seconds=4)


def _doctor(api: Api, driver: Flaky, *, outbox: Any = None, **terms: Any) -> Doctor:
    return Doctor(cast("JobDriver", driver), outbox, surroundings=lambda: NOTHING, now=api.env.now, **terms)
