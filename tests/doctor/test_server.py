from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from app.cli.devdb import DevPostgres
from app.control.doctor.finding import Level, Limits
from app.drivers.postgres import migrations
from tests.doctor.clinic import SURROUNDINGS, Clinic
from tests.support.made import new_worker

pytestmark = pytest.mark.postgres

NO_TIME = Limits(holder_age=timedelta(), slot_bytes=0, dead_rows=100)


@pytest.fixture
def clinic(database_url: str) -> Clinic:
    clinic = Clinic(database_url)
    clinic.limits = NO_TIME
    return clinic


async def session_of(clinic: Clinic, *statements: str) -> Any:
    """Give a session that has done something and is still there."""
    session = await clinic.connect()
    for statement in statements:
        await session.execute(statement)
    return session


async def test_a_long_transaction_is_named_and_ended(clinic: Clinic) -> None:
    session = await session_of(
        clinic, "set application_name = 'report'", "begin isolation level repeatable read", "select 1 from outlast.job"
    )
    finding = await clinic.sick("old_snapshots", Level.WARN)
    assert f"the session {session.get_server_pid()} (report)" in finding.text
    assert finding.facts["holders"][0]["kind"] == "transaction"  # type: ignore[index]
    await clinic.mend(finding)
    session.terminate()
    await clinic.well("old_snapshots")


async def test_a_prepared_transaction_is_named_and_rolled_back(durable_postgres: DevPostgres) -> None:
    clinic = Clinic(durable_postgres.dsn())
    clinic.limits = NO_TIME
    await clinic.execute("begin; create table left_behind(id int); prepare transaction 'it''s mine'")
    finding = await clinic.sick("old_snapshots", Level.WARN)
    assert finding.commands == ("rollback prepared 'it''s mine'",)
    await clinic.mend(finding)
    await clinic.well("old_snapshots")


async def test_a_replication_slot_that_nobody_reads_is_dropped(durable_postgres: DevPostgres) -> None:
    clinic = Clinic(durable_postgres.dsn())
    clinic.limits = NO_TIME
    await clinic.execute("select pg_create_physical_replication_slot('left_behind', true)")
    finding = await clinic.sick("replication_slots", Level.WARN)
    assert "left_behind" in finding.text
    await clinic.mend(finding)
    await clinic.well("replication_slots")


async def test_autovacuum_that_is_off_is_switched_on(durable_postgres: DevPostgres, clinic: Clinic) -> None:
    await clinic.execute("alter table outlast.ready set (autovacuum_enabled = false)")
    finding = await clinic.sick("vacuum")
    assert finding.facts == {"tables": ["ready"]}
    await clinic.mend(finding)
    await clinic.well("vacuum")
    own = Clinic(durable_postgres.dsn())
    await own.execute("alter system set autovacuum = off")
    durable_postgres.restart()
    finding = await own.sick("vacuum")
    assert finding.facts == {"off": ["autovacuum"]}
    await own.mend(finding)
    durable_postgres.restart()  # what was reloaded is so after it as well
    await own.well("vacuum")


async def test_dead_rows_are_vacuumed_away(clinic: Clinic) -> None:
    await clinic.execute(
        "insert into outlast.source(source_id, job_id, expires_at)"
        " select gen_random_uuid(), gen_random_uuid(), now() from generate_series(1, 500)",
        "delete from outlast.source",
        "select pg_stat_force_next_flush()",
    )
    finding = await clinic.sick("vacuum", Level.WARN)
    assert "500 in source" in finding.text
    await clinic.mend(finding)
    await clinic.execute("select pg_stat_force_next_flush()")
    await clinic.well("vacuum")


async def test_an_index_that_is_missing_or_broken_is_made(clinic: Clinic) -> None:
    await clinic.execute("drop index outlast.wait_event", "drop index outlast.ready_moved")
    finding = await clinic.sick("indexes")
    assert [index["name"] for index in finding.facts["indexes"]] == ["ready_moved", "wait_event"]  # type: ignore[attr-defined]
    await clinic.mend(finding)
    await clinic.well("indexes")
    assert await migrations.check(clinic.url) == ()
    await clinic.execute(
        "set allow_system_table_mods = on",
        "update pg_index set indisvalid = false where indexrelid = 'outlast.waiting_due'::regclass",
    )
    finding = await clinic.sick("indexes")
    assert "waiting_due is not valid" in finding.text
    await clinic.mend(finding)
    await clinic.well("indexes")


async def test_a_pool_that_is_too_large_is_made_smaller(clinic: Clinic) -> None:
    clinic.surroundings = replace(SURROUNDINGS, pool_size=500)
    finding = await clinic.sick("connections")
    assert finding.facts["per_process"] == 503
    (command,) = finding.commands
    name, _, size = command.partition("=")
    assert name == "OUTLAST_POOL_SIZE"
    clinic.surroundings = replace(SURROUNDINGS, pool_size=int(size))
    await clinic.well("connections")


async def test_more_workers_than_the_server_has_connections_for_are_given_more(durable_postgres: DevPostgres) -> None:
    clinic = Clinic(durable_postgres.dsn())
    await migrations.upgrade(clinic.url)
    async with clinic.driver() as driver:
        for _ in range(15):
            await driver.register_worker(new_worker(lease_ms=600_000))
    finding = await clinic.sick("connections", Level.WARN)
    assert finding.facts["needed"] == 15 * 7
    await clinic.mend(finding)
    durable_postgres.restart()
    await clinic.well("connections")


async def test_an_address_for_listening_that_leads_elsewhere_is_left_out(
    clinic: Clinic, make_database: Callable[..., str]
) -> None:
    clinic.listen_url = make_database()
    finding = await clinic.sick("wakeups")
    assert "OUTLAST_LISTEN_URL" in (finding.fix or "")
    clinic.listen_url = None
    await clinic.well("wakeups")
