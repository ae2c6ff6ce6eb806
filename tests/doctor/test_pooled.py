"""Behind a pooler: what the doctor finds there, and that what it says mends it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cli.devdb import DevPostgres
from app.control.doctor.finding import Level
from tests.doctor.clinic import Clinic
from tests.support import pooler

pytestmark = [pytest.mark.postgres, pytest.mark.pooled]


@pytest.fixture
def folder() -> Iterator[Path]:
    with pooler.folder() as made:
        yield made


async def test_wake_ups_are_heard_once_there_is_a_way_past_the_pooler(pooled_url: str, database_url: str) -> None:
    clinic = Clinic(pooled_url)
    finding = await clinic.sick("wakeups", Level.WARN)
    assert [command.partition("=")[0] for command in finding.commands] == ["OUTLAST_LISTEN_URL"]
    clinic.listen_url = database_url
    await clinic.well("wakeups")


async def test_settings_that_a_pooler_drops_are_given_to_the_role(database_url: str, folder: Path) -> None:
    with pooler.running_pooler(database_url, folder) as running:
        clinic = Clinic(running.url(database_url), listen_url=database_url)
        finding = await clinic.sick("session_settings", Level.WARN)
        assert "lock_timeout" in finding.facts["missing"]  # type: ignore[operator]
        await clinic.mend(finding)
    with pooler.running_pooler(database_url, folder) as running:  # its sessions are new
        clinic.url = running.url(database_url)
        await clinic.well("session_settings")


async def test_commits_that_a_role_does_not_wait_for_are_waited_for(
    durable_postgres: DevPostgres, folder: Path
) -> None:
    direct = durable_postgres.dsn()
    clinic = Clinic("", listen_url=direct)
    await clinic.execute(
        "do $$ begin execute format('alter role %I in database %I set synchronous_commit = off', current_user,"
        " current_database()); end $$"
    )
    with pooler.running_pooler(direct, folder) as running:
        clinic.url = running.url(direct)
        finding = await clinic.sick("durability")
        assert finding.facts == {"off": ["synchronous_commit"]}
        await clinic.mend(finding)
    with pooler.running_pooler(direct, folder) as running:
        clinic.url = running.url(direct)
        await clinic.well("durability")


async def test_statements_are_kept_once_the_pooler_looks_after_them(database_url: str, folder: Path) -> None:
    with pooler.running_pooler(database_url, folder) as running:
        clinic = Clinic(running.url(database_url), listen_url=database_url)
        is_old = pooler.version() < pooler.KEEPS_STATEMENTS
        finding = await clinic.find("pooler")
        assert finding.level is (Level.WARN if is_old else Level.OK)
    if is_old:
        assert "1.21" in (finding.fix or "")
        return
    with pooler.running_pooler(database_url, folder, max_prepared_statements="0") as running:
        clinic.url = running.url(database_url)
        (command,) = (await clinic.sick("pooler", Level.WARN)).commands
    name, _, value = command.partition(" = ")
    with pooler.running_pooler(database_url, folder, **{name: value}) as running:
        clinic.url = running.url(database_url)
        await clinic.well("pooler")
