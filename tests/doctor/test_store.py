from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest
from sqlalchemy.engine import make_url

from app.cli.devdb import DevPostgres
from app.control.doctor.checks import CHECKS
from app.control.doctor.doctor import Doctor
from app.control.doctor.finding import Finding, Level
from app.drivers.memory.driver import MemoryDriver
from app.drivers.postgres import migrations
from app.drivers.refused import RefusedDriver
from tests.doctor.clinic import SURROUNDINGS, Clinic, clock

pytestmark = pytest.mark.postgres


@pytest.fixture
def clinic(database_url: str) -> Clinic:
    return Clinic(database_url)


def a_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_a_fresh_database_is_well(clinic: Clinic) -> None:
    report = await clinic.report()
    found = {result.check.code: result.finding for result in report.results}
    assert [result.check.code for result in report.results] == [check.code for check in CHECKS]
    # Clusters of tests are quick to make and to lose.
    off = [code for code, finding in found.items() if finding.level not in {Level.OK, Level.SKIP}]
    assert off == ["durability"]
    assert {code for code, finding in found.items() if finding.level is Level.SKIP} == {"modules", "grace", "ports"}


async def test_a_store_that_is_away_is_said_and_everything_else_left_out(clinic: Clinic) -> None:
    away = Clinic(f"postgresql+asyncpg://nobody@127.0.0.1:{a_free_port()}/nothing")
    report = await away.report()
    found = {result.check.code: result.finding for result in report.results}
    assert found["database"].level is Level.FAIL
    assert found["database"].fix
    assert {finding.level for code, finding in found.items() if code != "database"} == {Level.SKIP}
    away.url = clinic.url
    await away.well("database")


async def test_a_schema_that_is_not_there_or_older_is_brought_up_to_date(make_database: Callable[..., str]) -> None:
    clinic = Clinic(make_database(migrated=False))
    finding = await clinic.sick("schema")
    assert finding.commands == ("outlast migrate up",)
    await migrations.upgrade(clinic.url)
    await clinic.well("schema")
    await migrations.downgrade(clinic.url, revision="-1")
    assert "is at" in (await clinic.sick("schema")).text
    assert (await clinic.find("queues")).level is Level.SKIP
    await migrations.upgrade(clinic.url)
    await clinic.well("schema")
    await clinic.well("queues")


async def test_a_role_that_lacks_rights_is_granted_them(clinic: Clinic) -> None:
    role = f"clerk_{uuid4().hex[:8]}"
    await clinic.execute(f"create role {role} login")
    owner = clinic.url
    clinic.url = make_url(owner).set(username=role).render_as_string(hide_password=False)
    clinic.listen_url = owner  # where somebody else types what is to be granted
    try:
        finding = await clinic.sick("privileges")
        assert (await clinic.find("schema")).level is Level.SKIP
        await clinic.mend(finding)
        for code in ("privileges", "schema", "queues", "leases", "outbox"):
            await clinic.well(code)
        await clinic.execute(f"revoke delete on outlast.ready from {role}")
        await clinic.mend(await clinic.sick("privileges"))
        await clinic.well("privileges")
    finally:
        await clinic.execute(f"drop owned by {role}", f"drop role {role}")


async def test_a_role_that_may_only_read_is_let_write(clinic: Clinic) -> None:
    name = (await clinic.find("writable")).text.split("'")[-2]
    await clinic.execute(f"alter database {name} set default_transaction_read_only = on")
    await clinic.mend(await clinic.sick("writable"))
    await clinic.well("writable")


async def test_a_clock_that_was_stopped_goes_again(clinic: Clinic) -> None:
    await clinic.execute(
        "create or replace function outlast.clock() returns timestamptz language sql stable parallel safe"
        " as $$select timestamptz '2030-01-01'$$"
    )
    await clinic.mend(await clinic.sick("clock"))
    await clinic.well("clock")


@pytest.mark.parametrize(("off_by", "level"), [(5, Level.WARN), (-5, Level.WARN), (60, Level.FAIL)])
async def test_clocks_that_differ_are_said_until_they_agree(clinic: Clinic, off_by: int, level: Level) -> None:
    clinic.now = lambda: clock() + timedelta(seconds=off_by)
    finding = await clinic.sick("clock", level)
    assert ("behind" if off_by > 0 else "ahead of") in finding.text
    clinic.now = clock  # what NTP does
    await clinic.well("clock")


async def test_commits_that_are_not_on_disk_are_put_there(durable_postgres: DevPostgres) -> None:
    clinic = Clinic(durable_postgres.dsn())
    await clinic.well("durability")
    await clinic.execute(
        "alter system set fsync = off", "alter system set full_page_writes = off", "select pg_reload_conf()"
    )
    finding = await until(clinic, Level.FAIL)
    assert finding.facts == {"off": ["fsync", "full_page_writes"]}
    await clinic.mend(finding)
    await until(clinic, Level.OK)


async def until(clinic: Clinic, level: Level) -> Finding:
    """Give what is found once the server has read its configuration again, which it does by and by."""
    async with asyncio.timeout(15):
        while (finding := await clinic.find("durability")).level is not level:
            pass
    return finding


async def test_a_volatile_store_says_so_and_is_no_server() -> None:
    driver = MemoryDriver()
    doctor = Doctor(driver, driver.outbox, surroundings=lambda: SURROUNDINGS, now=clock)
    found = {result.check.code: result.finding for result in (await doctor.examine()).results}
    assert found["database"].level is Level.WARN
    assert found["schema"].level is Level.SKIP
    assert found["queues"].level is Level.OK


async def test_a_store_that_is_not_built_says_what_to_do() -> None:
    doctor = Doctor(RefusedDriver("redis"), None, surroundings=lambda: SURROUNDINGS, now=clock)
    finding = (await doctor.examine()).results[0].finding
    assert (finding.level, "OUTLAST_DATABASE_URL" in (finding.fix or "")) == (Level.FAIL, True)


async def test_a_drain_is_measured_by_the_time_there_is(clinic: Clinic) -> None:
    clinic.surroundings = replace(SURROUNDINGS, grace=timedelta(seconds=30))
    finding = await clinic.sick("grace")
    (command,) = finding.commands
    assert command == "OUTLAST_DRAIN_SECONDS=20"
    clinic.surroundings = replace(clinic.surroundings, drain=timedelta(seconds=float(command.partition("=")[2])))
    await clinic.well("grace")
