"""Every page of the dashboard as somebody opens it, over a filled store, for the tests of what pages cost.

The tables that no list of jobs reads are filled here: what was audited, emitted, told and drained grows with the jobs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from app.dashboard.app import PLACES
from app.drivers.postgres.driver import PostgresDriver
from tests.dashboard.visitor import Visitor
from tests.support.drivers import NAME, PostgresEnv, start_time

_WEBHOOK = f"wh_{'0' * 16}"
_FILLS = (
    "truncate outlast.audit, outlast.event, outlast.webhook, outlast.delivery, outlast.drain, outlast.queue",
    """
insert into outlast.audit(id, at, actor, action, target_kind, target, outcome, details)
select gen_random_uuid(), now() - i * interval '1 second', 'ops', 'queue.pause', 'queue', 'queue-3', 'done', '{}'
from generate_series(1, $1::int) i""",
    """
insert into outlast.event(seq, id, tenant, name, key, payload, emitted_at, matched)
select i, gen_random_uuid(), 'default', 'order.approved', 'order:' || i, 'null', now() - i * interval '1 second', 1
from generate_series(1, $1::int) i""",
    """
insert into outlast.webhook(id, tenant, label, url, secret_no, master, created_at, created_by, version)
select 'wh_' || repeat('0', 16), 'default', 'shop', 'https://shop.example.com/', 1, 'm', now(), 'ops', $1::int""",
    """
insert into outlast.delivery(id, tenant, webhook, subject, run_id, name, queue, ended_as, attempt, ended_at, state,
  tried, tries)
select gen_random_uuid(), 'default', 'wh_' || repeat('0', 16), gen_random_uuid(), gen_random_uuid(), 'demo.rare',
  'queue-3', 0, 1, now() - i * interval '1 second', 1, 1, '[]' from generate_series(1, $1::int) i""",
    """
insert into outlast.drain(worker, host, code_version, reason, started_at, ended_at, job_ids, claim_nos, names, fates,
  ignored)
select 100 + i, 'host', '1', 'SIGTERM', now(), now(), '{}', '{}', '{}', '{}', '{}'
from generate_series(1, $1::int) i""",
)
# A list that is narrowed to a stretch of time three days ago, as a bar above it does.
_MORE = ("/jobs?q=finished:73h until:72h", "/?range=7d", "/dead?q=name:demo.rare")
# What shows no more than is in the address, or comes without a look at the store.
_STILL = {"/login"}
Opened = Callable[[], Awaitable[object]]


async def fill_beside(connection: Any, rows: int) -> None:
    """Fill the tables beside those of jobs."""
    await connection.execute(_FILLS[0])
    for sql in _FILLS[1:]:
        await connection.execute(sql, rows)


@asynccontextmanager
async def pages_of(driver: PostgresDriver, connection: Any) -> AsyncIterator[dict[str, Opened]]:
    """Give every page that is looked at, by its address."""
    ends = "select job_id from outlast.{} order by job_id desc limit 1"
    dead, ready = [await connection.fetchval(ends.format(table)) for table in ("finished", "ready")]
    parts = {"queue": "queue-3", "name": NAME, "webhook_id": _WEBHOOK, "key_id": "0" * 16, "bulk_id": "0" * 32}
    paths = [at.path for at in PLACES if not at.acts and at.path not in _STILL]
    async with Visitor(PostgresEnv(driver, driver._db.engine, start_time())).there() as visitor:

        def opening(path: str) -> Opened:
            async def opened() -> None:
                response = await visitor.browser.get(f"/ui{path}")
                assert response.status_code in {200, 404}, f"{path}: {response.text[:400]}"

            return opened

        found = {f"/ui{path}": opening(path.format(**parts, job_id=dead)) for path in (*paths, *_MORE)}
        yield found | {"/ui/jobs/READY": opening(f"/jobs/{ready}")}
