"""What stands behind the second wall and what does not: roles, grants, limits, and who is not bound by it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import product
from uuid import uuid4

import asyncpg
import pytest
from sqlalchemy.engine import make_url

from app.domain.audit import SHARED, Target
from app.domain.errors import JobNotFound
from app.domain.job import JobId, LimitKey
from app.drivers.postgres import migrations
from app.drivers.postgres.connect import dsn_of
from app.drivers.postgres.database import Database, create_engine
from app.drivers.postgres.driver import PostgresDriver
from tests.conformance.gated import RATED, admit, admit_one, declare, limited, request
from tests.support.drivers import PostgresEnv, new_job, postgres_env

pytestmark = pytest.mark.postgres

OURS, THEIRS = "acme", "globex"
LIMITED = (LimitKey("limit", "x"),)


@pytest.fixture
async def env(database_url: str) -> AsyncIterator[PostgresEnv]:
    async with postgres_env(database_url) as opened:
        yield opened


def db_of(env: PostgresEnv) -> Database:
    assert isinstance(env.driver, PostgresDriver)
    return env.driver._db


async def test_behind_the_wall_nothing_can_be_written_and_no_key_read(database_url: str) -> None:
    connection = await asyncpg.connect(dsn_of(database_url))
    try:
        for statement in (
            "insert into outlast.job_name(name) values ('x')",
            "update outlast.job set tenant = 'acme'",
            "delete from outlast.finished",
            "select digest from outlast.api_key",
            "select body from outlast.request",
            "select ready from outlast.queue_load",
            "truncate outlast.event",
        ):
            async with connection.transaction():
                await connection.execute("set local role outlast_api")
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    async with connection.transaction():
                        await connection.execute(statement)
    finally:
        await connection.close()


async def test_who_does_not_say_which_tenant_sees_nobodys_rows(env: PostgresEnv, database_url: str) -> None:
    await env.driver.enqueue_many([new_job(tenant=THEIRS), new_job(tenant=OURS)])
    connection = await asyncpg.connect(dsn_of(database_url))
    try:
        for tenant, seen in ((None, 0), ("", 0), (OURS, 1), ("nobody", 0)):
            async with connection.transaction():
                await connection.execute("set local role outlast_api")
                if tenant is not None:
                    await connection.execute("select set_config('outlast.tenant', $1, true)", tenant)
                assert await connection.fetchval("select count(*) from outlast.job") == seen
        assert await connection.fetchval("select count(*) from outlast.job") == 2
    finally:
        await connection.close()


async def test_another_tenants_slots_gate_and_keys_are_not_there(env: PostgresEnv, database_url: str) -> None:
    """One of theirs holds `x`, one of ours waits for it; theirs waits for `y` alone, which one of theirs holds."""
    await declare(env)
    worker = await env.register()
    for tenant, key in ((THEIRS, "x"), (THEIRS, "y"), (THEIRS, "y"), (OURS, "x"), (OURS, "z"), (OURS, "z")):
        await limited(env, tenant=tenant, limits=[LimitKey("limit", key)])
        await env.driver.admit(request(worker))
    connection = await asyncpg.connect(dsn_of(database_url))
    try:
        for tenant, slots, gate, keys in ((OURS, 1, 2, ["x", "z"]), (THEIRS, 2, 1, ["x", "y"]), ("nobody", 0, 0, [])):
            async with connection.transaction():
                await connection.execute("set local role outlast_api")
                await connection.execute("select set_config('outlast.tenant', $1, true)", tenant)
                assert await connection.fetchval("select count(*) from outlast.slot") == slots
                assert await connection.fetchval("select count(*) from outlast.gate") == gate
                rows = await connection.fetch("select key from outlast.limit_key order by key")
                assert [row["key"] for row in rows] == keys
    finally:
        await connection.close()


async def test_what_a_tenant_is_told_of_a_key_counts_everybodys_slots_and_names_its_own(env: PostgresEnv) -> None:
    await declare(env, 2)
    worker = await env.register()
    (theirs,) = await limited(env, tenant=THEIRS, limits=LIMITED)
    (own,) = await limited(env, tenant=OURS, limits=LIMITED)
    (waiting,) = await limited(env, tenant=OURS, limits=LIMITED)
    assert len(await admit(env, worker)) == 2
    for role in (db_of(env).api_role, None):
        db_of(env).api_role = role
        found = await env.driver.limits_of(waiting, tenant=OURS)
        assert found is not None
        (facts,) = found.limits
        assert (facts.n, facts.held, facts.holders, facts.is_free) == (2, 2, (own,), False)
        situation = await env.driver.situation(waiting, tenant=OURS)
        assert situation is not None
        assert not situation.is_claimable
        assert await env.driver.limits_of(theirs, tenant=OURS) is None


async def test_a_tenant_is_told_when_a_rate_that_others_use_lets_the_next_one_start(env: PostgresEnv) -> None:
    await declare(env, rate=(1, timedelta(minutes=1)))
    await limited(env, tenant=THEIRS, limits=[RATED])
    await admit_one(env, await env.register())
    (waiting,) = await limited(env, tenant=OURS, limits=[RATED])
    found = await env.driver.limits_of(waiting, tenant=OURS)
    assert db_of(env).api_role is not None
    assert found is not None
    assert found.limits[0].next_at == env.now() + timedelta(minutes=1)


async def test_an_upgrade_takes_off_the_wall_what_was_on_it(database_url: str) -> None:
    """Kept answers, in a schema whose table of them was made when the role had not been; and the queues' load."""
    may = "select has_table_privilege('outlast_api', $1, 'select')"
    await migrations.downgrade(database_url, revision="0018")
    connection = await asyncpg.connect(dsn_of(database_url))
    try:
        await connection.execute("grant select on outlast.request to outlast_api")
        for table in ("outlast.request", "outlast.queue_load"):
            assert await connection.fetchval(may, table)
        await migrations.upgrade(database_url)
        for table in ("outlast.request", "outlast.queue_load"):
            assert not await connection.fetchval(may, table)
        assert await connection.fetchval(may, "outlast.slot")
    finally:
        await connection.close()


async def test_an_upgrade_hides_from_tenants_what_was_done_to_other_things_for_all_of_them(database_url: str) -> None:
    """Of rows of the audit without a tenant those about what belongs to nobody alone stay to be seen."""
    connection = await asyncpg.connect(dsn_of(database_url))

    async def seen() -> list[str]:
        async with connection.transaction():
            await connection.execute("set local role outlast_api")
            await connection.execute("select set_config('outlast.tenant', $1, true)", OURS)
            rows = await connection.fetch("select target_kind, tenant from outlast.audit order by seq")
        return [row["target_kind"] + (f" of {row['tenant']}" if row["tenant"] else "") for row in rows]

    try:
        for kind, tenant in product(Target, (None, OURS, THEIRS)):
            await connection.execute(
                "insert into outlast.audit(id, actor, tenant, action, target_kind, outcome, details)"
                " values (gen_random_uuid(), 'ops', $1, 'x', $2, 'done', '{}')",
                *(tenant, kind.value),
            )
        own = {f"{kind.value} of {OURS}" for kind in Target}
        assert set(await seen()) == own | {kind.value for kind in SHARED}
        await migrations.downgrade(database_url, revision="0023")
        assert set(await seen()) == own | {kind.value for kind in Target}
        await migrations.upgrade(database_url)
        assert set(await seen()) == own | {kind.value for kind in SHARED}
    finally:
        await connection.close()


async def test_what_follows_on_the_connection_is_not_behind_the_wall(env: PostgresEnv) -> None:
    job_id = await env.enqueue(tenant=THEIRS)
    for _ in range(8):  # each of the pool's connections
        assert await env.driver.describe(job_id, tenant=OURS) is None
        assert await env.driver.describe(job_id) is not None
    with pytest.raises(JobNotFound):
        await env.driver.cancel(JobId(uuid4()), reason="x", tenant=OURS)
    assert await env.driver.cancel(job_id, reason="x", tenant=THEIRS)


async def test_another_account_that_works_on_the_tables_is_not_bound(database_url: str) -> None:
    """One that owns nothing and passes no row security by, as a worker's account may be; even a member of the role."""
    async with postgres_env(database_url) as env:
        await env.enqueue(tenant=THEIRS)
        name = f"w_{uuid4().hex[:8]}"
        for statement in (
            f"create role {name} login",
            f"grant usage on schema outlast to {name}",
            f"grant select, update on all tables in schema outlast to {name}",
            f"grant outlast_api to {name}",
        ):
            await env.execute(statement)
        connection = await asyncpg.connect(dsn_of(database_url))
        try:
            async with connection.transaction():
                await connection.execute(f"set local role {name}")
                assert await connection.fetchval("select count(*) from outlast.job") == 1
                assert await connection.execute("update outlast.job set priority = 1") == "UPDATE 1"
        finally:
            await connection.execute(f"drop owned by {name}; drop role {name}")
            await connection.close()


async def test_without_the_role_the_statements_stand_alone_and_the_driver_says_so(env: PostgresEnv) -> None:
    job_id = await env.enqueue(tenant=THEIRS)
    await env.execute("revoke select on outlast.job from outlast_api")
    await env.driver.open()
    assert not env.driver.capabilities.has_wall
    assert await env.driver.describe(job_id, tenant=OURS) is None
    assert await env.driver.describe(job_id, tenant=THEIRS) is not None
    await env.execute("grant select on outlast.job to outlast_api")
    await env.driver.open()
    assert env.driver.capabilities.has_wall


@pytest.mark.parametrize("may_make_roles", [True, False])
async def test_an_account_without_all_rights_migrates_and_serves(empty_database_url: str, may_make_roles: bool) -> None:
    """With the right to make roles the wall stands; without, the service works and says that it does not."""
    schema, name = f"s_{uuid4().hex[:8]}", f"o_{uuid4().hex[:8]}"
    admin = await asyncpg.connect(dsn_of(empty_database_url))
    url = make_url(empty_database_url).set(username=name)
    try:
        await admin.execute(f"create role {name} login {'createrole' if may_make_roles else ''}")
        await admin.execute(f'grant create on database "{url.database}" to {name}')
        await migrations.upgrade(url, schema=schema)
        driver = PostgresDriver(create_engine(url), schema=schema, owns_engine=True)
        await driver.open()
        try:
            assert driver.capabilities.has_wall is may_make_roles
            job = await driver.enqueue(new_job(tenant=THEIRS))
            assert await driver.describe(job.id, tenant=OURS) is None
            assert await driver.describe(job.id, tenant=THEIRS) is not None
            await driver.cancel(job.id, reason="x", tenant=THEIRS)
        finally:
            await driver.close()
        await migrations.downgrade(url, schema=schema, revision="0013")
        await migrations.upgrade(url, schema=schema)
    finally:
        await admin.execute(f"drop schema if exists {schema} cascade; drop owned by {name}")
        for role in (f"{schema}_api", name):
            if await admin.fetchval("select true from pg_roles where rolname = $1", role):
                await admin.execute(f"drop owned by {role}; drop role {role}")
        await admin.close()
