"""How a bulk operation begins and ends otherwise: jobs are counted, an operation is made over them, aborted, deleted.

The jobs that fit are read by one statement, and so in one snapshot: what was counted is what is acted on, and a job
that moves afterwards is said to have changed. Nothing here locks a job.
"""

from __future__ import annotations

from ...domain.audit import DONE, UNCHANGED, AuditEntry
from ...domain.bulk import (
    BULK_KEPT,
    MOST_SELECTED,
    BulkAction,
    BulkId,
    BulkView,
    JobFilter,
    NewBulk,
    check_selected,
    unknown_operation,
)
from ...domain.job import JobId
from ...domain.state import TERMINAL, State
from ..protocol import Wake
from .audit import keep
from .buckets import CODE_OF
from .buckets import DONE as ENDED_DONE
from .bulk_acts import OF_BATCH, SLEEPS
from .bulk_view import FIND, view_of
from .database import Database, Raw, Row
from .notify import notify
from .outbox_rows import count_of
from .reader import Reader
from .run_locks import looking

_BUCKETS = (
    (State.READY, "ready"),
    (State.READY, "gate"),
    (State.DELAYED, "waiting"),
    (State.RUNNING, "running"),
    (State.SUSPENDED, "suspended"),
    (State.HELD, "held"),
)
# Binds: $1 tenant, $2 name, $3 queue, $4 and $5 the times of the enqueue, $6 codes of ended jobs.
_FITTING = """
select e.id from ({tokens}) s
cross join lateral (
  select j.id from outlast.job j where j.id = s.job_id
    and ($1::text is null or j.tenant = $1) and ($3::text is null or j.queue = $3)
    and ($2::text is null or j.name_id = (select n.id from outlast.job_name n where n.name = $2))
    and ($4::timestamptz is null or j.created_at >= $4) and ($5::timestamptz is null or j.created_at < $5)
  offset 0) e"""
# $7 to $9: why dead jobs stopped, and of which kind their last error is.
_ENDED_ALIKE = f"""
select f.job_id from outlast.finished f
left join lateral (
  select a.error_type, a.error_code from outlast.attempt a where a.job_id = f.job_id
  order by a.number desc limit 1) a on true
where f.state = {CODE_OF[State.DEAD]} and f.state <> {ENDED_DONE} and $6::smallint[] is not null
  and coalesce(f.reason, '') = $7
  and a.error_type is not distinct from $8::text and a.error_code is not distinct from $9::text"""  # noqa: S608  same
_ENDED = "select f.job_id from outlast.finished f where f.state = any($6::smallint[])"
_ENDED_BADLY = f"{_ENDED} and f.state <> {ENDED_DONE}"  # read along the index of those alone
_NONE_ENDED = "select null::uuid where cardinality($6::smallint[]) < 0"
_COUNT_IDS = f"{OF_BATCH}select count(*) from fit"  # noqa: S608  fragments of our own
# To run a suspended job now is to end its sleep.
_ASLEEP = f" s where {SLEEPS.format(job_id='s.job_id')}"
_TO_RUN = f" where state <> '{State.SUSPENDED}' or {SLEEPS.format(job_id='fit.id')}"
_COUNT_IDS_TO_RUN = f"{_COUNT_IDS}{_TO_RUN}"

_NEW = """
insert into outlast.bulk(
  id, action, tenant, made_by, reason, by_ids, states, name, queue, created_after, created_before,
  priority, run_at, dead_reason, error_type, error_code)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
on conflict do nothing"""
_TAKE_FITTING = """
insert into outlast.bulk_item(bulk_id, job_id)
select {bulk}::uuid, f.id from (select f.id from ({fitting}) f limit {most}) f order by f.id"""
_TAKE_IDS = "insert into outlast.bulk_item(bulk_id, job_id) select $1, i.id from unnest($2::uuid[]) i(id) order by i.id"
# Of these, those that a number was counted of.
_TAKE_COUNTED = f"{OF_BATCH}insert into outlast.bulk_item(bulk_id, job_id) select $4, fit.id from fit"  # noqa: S608  same
_TAKE_COUNTED_TO_RUN = f"{_TAKE_COUNTED}{_TO_RUN}"
_SELECTED = """
update outlast.bulk set selected = $2, state = case when $2 = 0 then 1 else 0 end,
  ended_at = case when $2 = 0 then outlast.clock() end
where id = $1"""

_ABORT = """
update outlast.bulk set state = 2, ended_at = outlast.clock(), ended_by = $3
where id = $1 and ($2::text is null or tenant = $2) and state = 0"""

_IS_OLD = f"ended_at < outlast.clock() - interval '{BULK_KEPT.days} days'"
# Of every look for what is due: an operation runs, or there is an old one to delete.
MUST_WORK_OFF = f"""exists (select from outlast.bulk where state = 0)
  or exists (select from outlast.bulk where {_IS_OLD})"""  # noqa: S608  a number of our own

# The rows of an operation's jobs go first, the operation with the last of them.
_TRIM = f"""
with old as materialized (
  select id from outlast.bulk where {_IS_OLD}
  order by ended_at limit 1 for update skip locked),
gone as materialized (
  select i.bulk_id, i.job_id from outlast.bulk_item i where i.bulk_id = (select id from old) limit $1),
d as (delete from outlast.bulk_item i using gone s where i.bulk_id = s.bulk_id and i.job_id = s.job_id),
b as (delete from outlast.bulk where id = (select id from old) and (select count(*) from gone) < $1 returning id)
select (select count(*) from gone) + (select count(*) from b)"""  # noqa: S608  same


async def count(db: Reader, bulk: NewBulk) -> int:
    """Count the jobs that fit now, exactly up to `MOST_SELECTED`."""
    return await db.run(lambda conn: _count(db, conn, bulk))


async def make(db: Database, bulk: NewBulk, audit: AuditEntry | None) -> BulkView:
    """Make an operation, or give the one that was made under this id.

    Raises:
        CountChanged: another number of jobs than expected fits.
        RequestInvalid: too many fit.
    """

    async def once(conn: Raw) -> BulkView:
        async with looking(conn):
            if count_of(await conn.execute(db.in_schema(_NEW), *_row(bulk))):
                selected = await _select(db, conn, bulk)
                await conn.execute(db.in_schema(_SELECTED), bulk.id, selected)
                await keep(db, conn, None if audit is None else audit.came_to(DONE, selected=selected))
            made = await conn.fetchrow(db.in_schema(FIND), bulk.id, None)
        if made is None:
            raise AssertionError("the operation was inserted or was there")
        return view_of(made)

    view = await db.run(once)
    # Whoever keeps the store looks for what is due, this among it.
    await notify(db, Wake.DELAYED)
    return view


async def abort(db: Database, bulk_id: BulkId, *, by: str, tenant: str | None, audit: AuditEntry | None) -> BulkView:
    """Stop an operation; one that has ended stays as it is."""

    async def once(conn: Raw) -> Row | None:
        async with looking(conn):
            is_stopped = count_of(await conn.execute(db.in_schema(_ABORT), bulk_id, tenant, by)) > 0
            found = await conn.fetchrow(db.in_schema(FIND), bulk_id, tenant)
            if found is not None and audit is not None:
                counts = {name: found[name] for name in ("selected", "done", "changed", "failed")}
                await keep(db, conn, audit.came_to(DONE if is_stopped else UNCHANGED, **counts))
        return found

    row = await db.run(once)
    if row is None:
        raise unknown_operation(bulk_id)
    return view_of(row)


async def trim(db: Database, batch: int) -> int:
    """Delete one batch of what old operations have kept."""
    deleted: int = await db.run(lambda conn: conn.fetchval(db.in_schema(_TRIM), batch))
    return deleted


async def _count(db: Reader, conn: Raw, bulk: NewBulk) -> int:
    if bulk.ids is not None:
        binds = _id_binds(bulk, bulk.ids)
        sql = _COUNT_IDS if bulk.action is not BulkAction.RUN_NOW else _COUNT_IDS_TO_RUN
        return int(await conn.fetchval(db.in_schema(sql), *binds))
    sql = f"select count(*) from (select f.id from ({_fitting(bulk)}) f limit {MOST_SELECTED + 1}) f"  # noqa: S608  same
    return int(await conn.fetchval(db.in_schema(sql), *_filter_binds(bulk)))


async def _select(db: Database, conn: Raw, bulk: NewBulk) -> int:
    """Keep the ids of the jobs; gives how many. An id without a job, or in another state, is one to be answered.

    Not where a number is expected, which is of those that fit.
    """
    if bulk.ids is not None and bulk.expected_count is not None:
        sql = _TAKE_COUNTED if bulk.action is not BulkAction.RUN_NOW else _TAKE_COUNTED_TO_RUN
        taken = await conn.execute(db.in_schema(sql), *_id_binds(bulk, bulk.ids), bulk.id)
        check_selected(bulk, count_of(taken))
        return count_of(taken)
    if bulk.ids is not None:
        return count_of(await conn.execute(db.in_schema(_TAKE_IDS), bulk.id, sorted(set(bulk.ids))))
    binds = _filter_binds(bulk)
    sql = _TAKE_FITTING.format(fitting=_fitting(bulk), most=MOST_SELECTED + 1, bulk=f"${len(binds) + 1}")
    selected = count_of(await conn.execute(db.in_schema(sql), *binds, bulk.id))
    check_selected(bulk, selected)
    return selected


def _fitting(bulk: NewBulk) -> str:
    """Give the statement that yields the ids of the jobs that fit."""
    ended = bulk.states & TERMINAL
    parts = [f"select job_id from outlast.{table}" for state, table in _BUCKETS if state in bulk.states]  # noqa: S608  names of our own
    if bulk.action is BulkAction.RUN_NOW:
        parts = [part + _ASLEEP if part.endswith("outlast.suspended") else part for part in parts]
    if bulk.jobs is not None and bulk.jobs.error is not None:
        return _FITTING.format(tokens=_ENDED_ALIKE)
    parts.append(_ENDED if State.DONE in ended else _ENDED_BADLY if ended else _NONE_ENDED)
    return _FITTING.format(tokens=" union all ".join(parts))


def _id_binds(bulk: NewBulk, ids: tuple[JobId, ...]) -> tuple[object, ...]:
    return sorted(set(ids)), bulk.tenant, sorted(bulk.states)


def _filter_binds(bulk: NewBulk) -> tuple[object, ...]:
    jobs = bulk.jobs or JobFilter()
    codes = sorted(CODE_OF[state] for state in bulk.states & TERMINAL)
    alike = () if jobs.error is None else (jobs.error.reason, jobs.error.type, jobs.error.code)
    return (bulk.tenant, jobs.name, jobs.queue, jobs.created_after, jobs.created_before, codes, *alike)


def _row(bulk: NewBulk) -> tuple[object, ...]:
    jobs = bulk.jobs or JobFilter()
    asked = (bulk.id, bulk.action.value, bulk.tenant, bulk.by, bulk.reason, bulk.ids is not None, sorted(bulk.states))
    alike = (None, None, None) if jobs.error is None else (jobs.error.reason, jobs.error.type, jobs.error.code)
    times = (jobs.created_after, jobs.created_before)
    return (*asked, jobs.name, jobs.queue, *times, bulk.priority, bulk.run_at, *alike)
