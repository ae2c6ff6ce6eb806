from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import cast

from app.control.doctor.checks import CHECKS
from app.control.doctor.doctor import Doctor
from app.control.doctor.finding import Surroundings
from app.drivers.protocol import JobDriver
from tests.http.api import Api, code_of
from tests.http.test_openapi import OPERATIONS, check
from tests.roles.harness import Flaky, Gate


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
    nothing = Surroundings(pool_size=4, drain=timedelta(seconds=25))
    doctor = Doctor(cast("JobDriver", driver), None, surroundings=lambda: nothing, now=api.env.now)
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
