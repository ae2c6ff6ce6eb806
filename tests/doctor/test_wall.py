"""The wall between tenants, with a stone out of it each time: what is said brings it back as it was."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy.engine import make_url

from app.control.doctor.finding import Level
from app.drivers.postgres import migrations
from app.drivers.postgres.vitals_wall import WALLED
from tests.doctor.clinic import Clinic

pytestmark = pytest.mark.postgres

_POLICIES = """
select c.relname::text, c.relrowsecurity, p.polname::text, p.polpermissive, p.polcmd::text,
  replace(pg_get_expr(p.polqual, p.polrelid), $$('outlast'::text || '.tenant'::text)$$, $$'outlast.tenant'::text$$)
    as rows,
  pg_get_expr(p.polwithcheck, p.polrelid) as written
from pg_policy p join pg_class c on c.oid = p.polrelid where c.relnamespace = 'outlast'::regnamespace
order by c.relname, p.polname"""
_RIGHTS = """
select c.relname::text, array(
  select r from unnest(array['select', 'insert', 'update', 'delete']) r
  where has_table_privilege('outlast_api', c.oid, r)) as may
from pg_class c where c.relnamespace = 'outlast'::regnamespace and c.relkind in ('r', 'v') order by c.relname"""


@pytest.fixture
def clinic(database_url: str) -> Clinic:
    return Clinic(database_url)


async def wall_of(clinic: Clinic) -> list[tuple[Any, ...]]:
    connection = await clinic.connect()
    try:
        rows = [*await connection.fetch(_POLICIES), *await connection.fetch(_RIGHTS)]
        return [tuple(row.values()) for row in rows if row["relname"] != "alembic_version"]
    finally:
        await connection.close()


async def test_every_table_with_a_policy_is_looked_at(clinic: Clinic) -> None:
    connection = await clinic.connect()
    try:
        rows = await connection.fetch(_POLICIES)
    finally:
        await connection.close()
    assert {row["relname"] for row in rows} == set(WALLED)


async def test_a_wall_that_stands_is_well(clinic: Clinic) -> None:
    finding = await clinic.well("tenant_wall")
    assert finding.facts == {"role": "outlast_api", "gaps": []}


@pytest.mark.parametrize("table", [*WALLED])
async def test_a_table_without_its_policies_is_named_and_has_them_again(clinic: Clinic, table: str) -> None:
    before = await wall_of(clinic)
    for policies in (["everybody"], ["own_tenant"], ["everybody", "own_tenant"]):
        await clinic.execute(*(f"drop policy {policy} on outlast.{table}" for policy in policies))
        finding = await clinic.sick("tenant_wall")
        assert finding.facts["gaps"] == [f"{table} has not both of its policies"]
        await clinic.mend(finding)
        await clinic.well("tenant_wall")
        assert await wall_of(clinic) == before


@pytest.mark.parametrize(
    ("breach", "gap"),
    [
        ("alter table outlast.slot disable row level security", "slot has no row security"),
        ("grant select on outlast.request to outlast_api", '"outlast_api" may read request'),
        ("grant select on outlast.api_key to outlast_api", '"outlast_api" may read api_key'),
        ("grant select on outlast.queue_load to outlast_api", '"outlast_api" may read queue_load'),
        ("grant update on outlast.job to outlast_api", '"outlast_api" may write to job'),
        ("revoke select on outlast.limit_rule from outlast_api", '"outlast_api" may not read limit_rule'),
        ("revoke usage on schema outlast from outlast_api", '"outlast_api" may not use the schema'),
    ],
)
async def test_a_gap_is_named_and_closed(clinic: Clinic, breach: str, gap: str) -> None:
    before = await wall_of(clinic)
    await clinic.execute(breach)
    finding = await clinic.sick("tenant_wall")
    assert finding.facts["gaps"] == [gap]
    await clinic.mend(finding)
    await clinic.well("tenant_wall")
    assert await wall_of(clinic) == before


async def test_a_policy_that_lets_everything_through_under_the_same_name_is_a_gap(clinic: Clinic) -> None:
    await clinic.execute(
        "drop policy own_tenant on outlast.slot", "create policy own_tenant on outlast.slot using (true)"
    )
    await clinic.mend(await clinic.sick("tenant_wall"))
    await clinic.well("tenant_wall")


async def test_a_role_that_is_not_there_or_not_ours_is_a_warning_and_its_repair_works(empty_database_url: str) -> None:
    """For an account that may make no roles, in a schema of its own."""
    schema, name = f"s_{uuid4().hex[:8]}", f"o_{uuid4().hex[:8]}"
    admin = Clinic(empty_database_url)
    url = make_url(empty_database_url)
    try:
        await admin.execute(f"create role {name} login", f'grant create on database "{url.database}" to {name}')
        account = Clinic(url.set(username=name).render_as_string(hide_password=False), schema=schema)
        await migrations.upgrade(account.url, schema=schema)
        finding = await account.sick("tenant_wall", Level.WARN)
        assert finding.text.startswith(f"the role {schema}_api is not there")
        await admin.mend(finding)
        await account.well("tenant_wall")
        await admin.execute(f"revoke {schema}_api from {name}")
        finding = await account.sick("tenant_wall", Level.WARN)
        assert finding.text.startswith(f"the role {schema}_api may not be taken by {name}")
        assert finding.commands == (f'grant "{schema}_api" to "{name}"',)
        await admin.mend(finding)
        await account.well("tenant_wall")
    finally:
        await admin.execute(f"drop schema if exists {schema} cascade", f"drop owned by {name}")
        await admin.execute(f"drop owned by {schema}_api", f"drop role {schema}_api", f"drop role {name}")
