"""The second wall: with every tenant predicate of the statements gone, another tenant's rows are still not there."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from app.domain.audit import Action, AuditQuery, Target
from app.domain.bulk import BulkAction
from app.domain.edit import JobPatch
from app.domain.errors import JobNotFound
from app.domain.event import EventQuery
from app.domain.job import JobId, LimitKey
from app.domain.limit import SlotQuery
from app.domain.outcome import Held
from app.domain.state import State
from app.domain.step import RetryMode
from app.domain.webhook import Callback
from app.drivers.postgres import list_sources
from app.drivers.postgres.database import Database
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.reading import ListQuery
from tests.conformance.endings import dead_lettered
from tests.conformance.gated import admit_one, declare, limited
from tests.conformance.runs import new_event
from tests.conformance.test_webhooks import a_webhook
from tests.conformance.test_webhooks import store_of as webhooks_of
from tests.support.audit import an_entry
from tests.support.bulk import a_bulk
from tests.support.bulk import store_of as bulks_of
from tests.support.drivers import PostgresEnv, new_id, postgres_env

pytestmark = pytest.mark.postgres

OURS, THEIRS = "acme", "globex"
HOOK = a_webhook(tenant=THEIRS)
# Every way a statement names the tenant of its caller.
_PREDICATE = re.compile(r"\((\$\d+)::text is null or (?:[a-z]\.tenant is null or )?(?:[a-z]\.)?tenant = \1\)")
_OF_SHARED = re.compile(r"and \((\$\d+)::text is null or c\.tenant is not null or c\.target_kind in \([^)]*\)\)")
_OF_KEY = re.compile(r"where tenant = (\$\d+) and name")

Look = Callable[[PostgresEnv, JobId], Awaitable[object]]


@pytest.fixture
async def env(database_url: str) -> AsyncIterator[PostgresEnv]:
    async with postgres_env(database_url) as opened:
        yield opened


@pytest.fixture
def no_predicates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every statement forget whose rows it was to read, as a mistake in each of them would."""
    plain = Database.in_schema

    def forgetful(self: Database, sql: str) -> str:
        forgot = _PREDICATE.sub(r"(\1::text is null or true)", _OF_SHARED.sub("", sql))
        return plain(self, _OF_KEY.sub(r"where \1::text is not null and name", forgot))

    monkeypatch.setattr(Database, "in_schema", forgetful)
    monkeypatch.setattr(list_sources, "TENANT", list_sources.ALL)


def db_of(env: PostgresEnv) -> Database:
    assert isinstance(env.driver, PostgresDriver)
    return env.driver._db


async def _jobs(env: PostgresEnv, tenant: str) -> object:
    return (await env.driver.list(ListQuery(tenant=tenant))).items


READS: dict[str, Callable[[PostgresEnv, JobId, str], Awaitable[object]]] = {
    "describe": lambda env, job_id, tenant: env.driver.describe(job_id, tenant=tenant),
    "situation": lambda env, job_id, tenant: env.driver.situation(job_id, tenant=tenant),
    "attempts": lambda env, job_id, tenant: env.driver.attempts(job_id, tenant=tenant),
    "run": lambda env, job_id, tenant: env.driver.run(job_id, tenant=tenant),
    "list": lambda env, _, tenant: _jobs(env, tenant),
    "dead letters": lambda env, _, tenant: env.driver.dead_letters(tenant=tenant),
    "events": lambda env, _, tenant: env.driver.events(EventQuery(tenant=tenant)),
    "events of a key": lambda env, _, tenant: env.driver.events(
        EventQuery(tenant=tenant, name="order.approved", key="7")
    ),
    "audit": lambda env, _, tenant: _audit(env, tenant),
    "bulk": lambda env, _, tenant: bulks_of(env).operations(limit=10, tenant=tenant),
    "slots": lambda env, _, tenant: _slots(env, tenant),
    "webhooks": lambda env, _, tenant: webhooks_of(env).webhooks(tenant=tenant),
    "a webhook": lambda env, _, tenant: webhooks_of(env).webhook(HOOK.id, tenant=tenant),
    "deliveries": lambda env, _, tenant: _deliveries(env, tenant),
}


LIMITED = (LimitKey("limit", "x"),)


async def _slots(env: PostgresEnv, tenant: str) -> object:
    return await env.driver.slots(SlotQuery(tenant=tenant))


async def _deliveries(env: PostgresEnv, tenant: str) -> object:
    return (await webhooks_of(env).deliveries(HOOK.id, tenant=tenant)).items


async def _audit(env: PostgresEnv, tenant: str) -> object:
    return (await env.driver.audit(AuditQuery(tenant=tenant))).items


async def _something_of_everything(env: PostgresEnv) -> JobId:
    await dead_lettered(env, {"tenant": THEIRS})
    job_id = await env.enqueue(tenant=THEIRS)
    running = await env.claim_one(await env.register())
    await env.close_attempt(running.token, Held(reason="does not fit"))
    await declare(env)
    await limited(env, tenant=THEIRS, limits=LIMITED)
    await admit_one(env, await env.register())
    await env.driver.patch(job_id, JobPatch(priority=1), audit=an_entry(Action.JOB_UPDATE, job_id))
    await env.driver.emit(replace(new_event(), tenant=THEIRS, name="order.approved", key="7"))
    await bulks_of(env).make(replace(a_bulk(BulkAction.DELETE, State.HELD), tenant=THEIRS))
    await env.driver.keep_entry(an_entry(Action.KEY_CREATE, "ops", target_kind=Target.KEY))
    await webhooks_of(env).create(HOOK)
    told = await env.enqueue(tenant=THEIRS, callback=Callback(webhook=HOOK.id).text())
    await env.driver.cancel(told, reason="x")
    return job_id


@pytest.mark.parametrize("read", READS)
@pytest.mark.usefixtures("no_predicates")
async def test_a_read_that_forgets_the_tenant_finds_nothing(env: PostgresEnv, read: str) -> None:
    job_id = await _something_of_everything(env)
    assert db_of(env).api_role == "outlast_api"
    assert not await READS[read](env, job_id, OURS)
    assert await READS[read](env, job_id, THEIRS)
    db_of(env).api_role = None
    assert await READS[read](env, job_id, OURS), "the statement still knows its tenant: nothing was shown"


@pytest.mark.parametrize("read", READS)
async def test_a_read_without_the_wall_finds_nothing_of_another_tenant(env: PostgresEnv, read: str) -> None:
    job_id = await _something_of_everything(env)
    db_of(env).api_role = None
    assert not await READS[read](env, job_id, OURS)
    assert await READS[read](env, job_id, THEIRS)


VERBS: dict[str, Callable[[PostgresEnv, JobId], Awaitable[object]]] = {
    "cancel": lambda env, job_id: env.driver.cancel(job_id, reason="x", tenant=OURS),
    "retry": lambda env, job_id: env.driver.retry(job_id, tenant=OURS),
    "retry fresh": lambda env, job_id: env.driver.retry(job_id, mode=RetryMode.FRESH, tenant=OURS),
    "run now": lambda env, job_id: env.driver.run_now(job_id, tenant=OURS),
    "patch": lambda env, job_id: env.driver.patch(job_id, JobPatch(priority=1), tenant=OURS),
    "delete": lambda env, job_id: env.driver.delete(job_id, tenant=OURS),
    "fork": lambda env, job_id: env.driver.fork(job_id, new_id=new_id(), tenant=OURS),
    "release": lambda env, job_id: env.driver.release_held(job_id, tenant=OURS),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.usefixtures("no_predicates")
async def test_a_verb_that_forgets_the_tenant_does_nothing(env: PostgresEnv, verb: str) -> None:
    jobs = [await env.enqueue(tenant=THEIRS, delay=timedelta(hours=1)), await env.enqueue(tenant=THEIRS)]
    await env.driver.cancel(jobs[1], reason="stop")
    before = [await env.describe(job_id) for job_id in jobs]
    for job_id in jobs:
        with pytest.raises(JobNotFound):
            await VERBS[verb](env, job_id)
    assert [await env.describe(job_id) for job_id in jobs] == before


@pytest.mark.parametrize("verb", VERBS)
async def test_a_verb_without_the_wall_does_nothing_to_another_tenants_job(env: PostgresEnv, verb: str) -> None:
    jobs = [await env.enqueue(tenant=THEIRS, delay=timedelta(hours=1)), await env.enqueue(tenant=THEIRS)]
    await env.driver.cancel(jobs[1], reason="stop")
    before = [await env.describe(job_id) for job_id in jobs]
    db_of(env).api_role = None
    for job_id in jobs:
        with pytest.raises(JobNotFound):
            await VERBS[verb](env, job_id)
    assert [await env.describe(job_id) for job_id in jobs] == before
