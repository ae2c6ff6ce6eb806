"""What callers and visitors see of a read that took too long: a coded answer, and a page with its filter."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from app.drivers.postgres.connect import dsn_of
from app.drivers.postgres.driver import PostgresDriver
from tests.dashboard.visitor import Visitor
from tests.http.api import code_of
from tests.support.drivers import NAME, postgres_env

pytestmark = pytest.mark.postgres

LISTS = ("/v1/jobs", "/v1/jobs?queue=q&sort=created_at", "/v1/audit", "/v1/events", "/v1/queues", "/v1/bulk-operations")
_TABLES = "outlast.job, outlast.audit, outlast.event, outlast.ready, outlast.bulk"
# Whatever still read would wait for the lock.
_BUSY = """
select count(*) from pg_locks l join pg_database d on d.oid = l.database
where not l.granted and d.datname = current_database()"""


@pytest.fixture
async def slow(database_url: str) -> AsyncIterator[Visitor]:
    """A visitor of a store that answers no read of many rows while it is locked, and one that says so soon."""
    async with postgres_env(database_url) as env, Visitor(env).there() as there:
        yield there


async def test_callers_are_told_and_visitors_keep_their_filter(
    slow: Visitor, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.drivers.postgres.bulk._COUNT_SECONDS", 0.03)
    driver = slow.env.driver
    assert isinstance(driver, PostgresDriver)
    beside = await asyncpg.connect(dsn_of(database_url))
    assert (await slow.api.client.get("/v1/jobs")).json()["items"] == []
    driver._db.look_seconds = 0.03
    try:
        async with beside.transaction():
            await beside.execute(f"lock table {_TABLES} in access exclusive mode")
            for path in LISTS:
                answer = await slow.api.client.get(path)
                assert code_of(answer) == (503, "QUERY_TOO_SLOW"), path
                assert answer.headers["retry-after"] == "1"
                problem = answer.json()
                assert problem["retryable"] is True
                assert "narrow the filter" in problem["fix"]
            dry = {"action": "cancel", "selector": {"filter": {"state": ["ready"]}}, "dry_run": True}
            answer = await slow.api.client.post("/v1/bulk-operations", json=dry)
            assert code_of(answer) == (503, "QUERY_TOO_SLOW")
            page = await slow.get("/jobs?q=queue:q")
            assert page.status_code == 503
            assert page.headers["retry-after"] == "1"
            assert "Too slow, narrow the filter" in page.text
            assert "QUERY_TOO_SLOW" in page.text
            assert 'id="search"' in page.text, "the filter is there to be narrowed"
            assert "<b>queue:</b>q" in page.text
            for path in ("/jobs.file?q=queue:q", "/dead", "/queues", "/events", "/audit"):
                page = await slow.get(path)
                assert page.status_code == 503, path
                assert "Too slow, narrow the filter" in page.text, path
            assert await beside.fetchval(_BUSY) == 0, "nothing goes on that nobody reads"
    finally:
        await beside.close()
    driver._db.look_seconds = 60.0
    assert (await slow.api.client.get("/v1/jobs")).json()["items"] == []
    assert NAME not in (await slow.see("/jobs?q=queue:q")).partition('id="rows"')[2].partition("</div>")[0]


async def test_an_action_is_not_refused_for_what_is_read_after_it(slow: Visitor) -> None:
    driver = slow.env.driver
    assert isinstance(driver, PostgresDriver)
    driver._db.look_seconds = 0.0
    assert code_of(await slow.api.client.get("/v1/queues")) == (503, "QUERY_TOO_SLOW")
    paused = await slow.api.client.post("/v1/queues/q/pause", json={"reason": "deploy"})
    assert paused.status_code == 200, paused.text
    assert paused.json()["pause_reason"] == "deploy"
    examined = await slow.api.client.get("/v1/doctor")
    assert examined.status_code == 200, "who looks for what is slow is told"
