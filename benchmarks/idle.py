"""What a worker without work costs, alone and beside a hundred thousand runs that sleep or wait for an event."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from .bed import Bed, cpu_of, cpu_of_one, driver_on, raw_on
from .drain import start_worker
from .work import new_jobs

_SETTLED_SECONDS = 3.0  # after a start, and after the server has tidied up what was filled in

_PILE = """
create table outlast.pile as select gen_random_uuid() as id, i from generate_series(1, {count}) i;
insert into outlast.job(id, name_id, queue, priority, tenant, payload, max_attempts, max_crashes)
  select id, 1, 'default', 5, 'default', '{{}}', 3, 3 from outlast.pile;
insert into outlast.suspended(job_id, queue, rank, name_id, claim_no, reason)
  select id, 'default', 10, 1, 1, case when i % 2 = 0 then 2 else 3 end from outlast.pile;
insert into outlast.wait(job_id, name, kind, branch, number, due_at, tenant, event, event_key, code_version)
  select id, 'w', case when i % 2 = 0 then 2 else 3 end, '', 1, outlast.clock() + interval '1 hour',
    case when i % 2 = 1 then 'default' end, case when i % 2 = 1 then 'go' end, case when i % 2 = 1 then i::text end, '1'
  from outlast.pile;
drop table outlast.pile
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """Statements a second; CPU of the worker, and of the server's processes that serve it, in milliseconds a second."""

    statements: float
    worker_cpu: float
    server_cpu: float


async def alone_and_beside(bed: Bed, *, sleeping: int, seconds: float) -> tuple[Idle, Idle]:
    """Measure an idle worker process, then another beside runs that sleep."""
    return await _idle(bed, 0, seconds), await _idle(bed, sleeping, seconds)


async def _idle(bed: Bed, sleeping: int, seconds: float) -> Idle:
    async with bed.fresh("bench_asleep") as url, raw_on(url) as raw:
        await raw.execute("create extension if not exists pg_stat_statements")
        async with driver_on(url) as driver:
            await driver.enqueue_many(new_jobs(1))
        if sleeping:
            await raw.execute(_PILE.format(count=sleeping))
        await raw.execute("vacuum analyze")
        await raw.execute("checkpoint")
        worker = await start_worker(url, 10, "noop")
        await asyncio.sleep(_SETTLED_SECONDS)
        calls, cpu, server = await calls_of(raw), cpu_of(worker.pid), await _served(raw)
        await asyncio.sleep(seconds)
        calls, cpu = await calls_of(raw) - calls - 2, cpu_of(worker.pid) - cpu
        before, server = server, await _served(raw)
        spent = sum(now - before.get(pid, 0.0) for pid, now in server.items())
        worker.terminate()
        await worker.communicate()
        return Idle(statements=calls / seconds, worker_cpu=cpu / seconds * 1_000, server_cpu=spent / seconds * 1_000)


async def _served(raw: Any) -> dict[int, float]:
    """Give the CPU seconds of each server process that others have on this database, to the nanosecond.

    The rest of the server still tidies up what was filled in, minutes later.
    """
    others = "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    pids = [row["pid"] for row in await raw.fetch(others)]
    return {pid: cpu_of_one(pid) for pid in pids}


async def calls_of(raw: Any) -> int:
    """Count the statements that this database has run so far."""
    calls = "select coalesce(sum(calls), 0)::bigint from pg_stat_statements s join pg_database d on d.oid = s.dbid"
    return int(await raw.fetchval(f"{calls} where d.datname = current_database()"))
