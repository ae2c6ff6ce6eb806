"""`step`: one batch of one operation, in one transaction: the operation's row, its jobs, their verdicts.

The row is locked first and waits for nobody; who has it is the only executor of that operation until its commit, so a
job is acted on once, and what a killed executor had begun never was. Jobs that call others take more than one
statement each: they are cancelled one by one, after the batch. Called by any worker, and by who waits for an operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from ...domain.bulk import BulkAction, BulkId, BulkStep, BulkVerdict
from ...domain.job import JobId
from ...domain.outcome import CancelVerdict
from ..protocol import Wake
from .bulk_acts import VERDICT_CODES, Act
from .bulk_cancel import CALLERS, CANCEL, HOLD
from .bulk_retry import RELEASE, RETRY
from .bulk_view import COLUMNS, reason_of, view_of
from .cancel import cancel_family
from .database import Database, Raw, Row
from .notify import notify
from .run_locks import looking
from .waits import tell_parents

ACTS = {
    BulkAction.CANCEL: Act(CANCEL, (Wake.FINISHED,), binds=lambda row: (reason_of(row),), ends_jobs=True),
    BulkAction.RETRY: Act(RETRY, (Wake.READY,)),
    BulkAction.RELEASE: Act(RELEASE, (Wake.READY,)),
}
_DONE, _RUNNING, _ENDED = VERDICT_CODES[BulkVerdict.DONE], 0, 1
_FIRST = UUID(int=0)
# Jobs that call others, of one batch: each is a transaction, and a drain waits for the batch.
_MOST_APART = 50

# In turn: the next after the one that was stepped last, else the first.
_TAKE = f"""
select {COLUMNS}, at_round, at_job from outlast.bulk
where state = {_RUNNING} and ($1::uuid is null or id = $1)
order by ($2::uuid is not null and id <= $2), id limit 1 for update skip locked"""  # noqa: S608  fragments of our own

_NEXT = """
select i.job_id, i.round from outlast.bulk_item i
where i.bulk_id = $1 and i.verdict is null and (i.round, i.job_id) > ($2::int, $3::uuid)
order by i.round, i.job_id limit $4"""

# Found by their key alone: an index of what is left would be read from its front for each batch.
_MARK = f"""
with v as materialized (
  select * from unnest($2::uuid[], $3::smallint[], $4::text[], $5::text[]) v(job_id, verdict, code, detail)),
m as (
  update outlast.bulk_item i set verdict = v.verdict, code = v.code, detail = v.detail, decided_at = outlast.clock()
  from v where i.bulk_id = $1 and i.job_id = v.job_id returning i.verdict),
l as (
  update outlast.bulk_item set round = round + 1
  where bulk_id = $1 and job_id = any($6::uuid[])),
n as materialized (
  select count(*) filter (where verdict = 0) as done, count(*) filter (where verdict = 1) as changed,
    count(*) filter (where verdict = 2) as failed from m)
update outlast.bulk b set
  done = b.done + n.done, changed = b.changed + n.changed, failed = b.failed + n.failed,
  at_round = $7, at_job = $8,
  state = case when b.done + b.changed + b.failed + n.done + n.changed + n.failed >= b.selected then {_ENDED}
    else b.state end,
  ended_at = case when b.done + b.changed + b.failed + n.done + n.changed + n.failed >= b.selected
    then outlast.clock() end
from n where b.id = $1
returning {", ".join(f"b.{name.strip()}" for name in COLUMNS.split(","))},
  n.done as done_now, n.changed as changed_now, n.failed as failed_now"""  # noqa: S608  same


class _Batch(NamedTuple):
    """What a committed batch did: the marked row, whom to tell, and what is to be done one by one."""

    row: Row
    wakes: tuple[Wake, ...]
    children: list[UUID]
    apart: list[UUID]


async def step(
    db: Database, *, only: BulkId | None = None, after: BulkId | None = None, batch: int = 500
) -> BulkStep | None:
    """Act on the next batch of an operation; None: none runs, or somebody else has it in hand."""
    taken = await db.run(lambda conn: _batch(db, conn, only, after, batch))
    if taken is None:
        return None
    if taken.row["done_now"]:
        await notify(db, *taken.wakes)
    await tell_parents(db, taken.children)
    rows = [taken.row]
    for job_id in taken.apart:
        row = await _cancel_apart(db, BulkId(taken.row["id"]), job_id)
        if row is not None:
            rows.append(row)
    return BulkStep(
        view=view_of(rows[-1]),
        done=sum(row["done_now"] for row in rows),
        changed=sum(row["changed_now"] for row in rows),
        failed=sum(row["failed_now"] for row in rows),
    )


async def _batch(db: Database, conn: Raw, only: BulkId | None, after: BulkId | None, batch: int) -> _Batch | None:
    async with looking(conn):
        bulk = await conn.fetchrow(db.in_schema(_TAKE), only, after)
        if bulk is None:
            return None
        items = await conn.fetch(db.in_schema(_NEXT), bulk["id"], bulk["at_round"], bulk["at_job"], batch)
        ids = [item["job_id"] for item in items]
        act = ACTS[BulkAction(bulk["action"])]
        which = (ids, bulk["tenant"], bulk["states"], bulk["by_ids"])
        found = await conn.fetch(db.in_schema(act.sql), *which, *act.binds(bulk))
        decided = {row["job_id"] for row in found}
        left = [job_id for job_id in ids if job_id not in decided]
        apart = await _callers(db, conn, left) if act.ends_jobs else []
        # Were nothing left behind the last batch, the next would begin at the beginning.
        place = (items[-1]["round"], items[-1]["job_id"]) if items else (0, _FIRST)
        marked = await _mark(db, conn, bulk["id"], found, left=left, place=place)
    is_told = any(row["detail"] == CancelVerdict.SIGNALLED for row in found)
    children = [row["job_id"] for row in found if row["is_child"]] if act.ends_jobs else []
    return _Batch(marked, (*act.wakes, *((Wake.REVOKED,) if is_told else ())), children, apart)


async def _callers(db: Database, conn: Raw, left: Sequence[UUID]) -> list[UUID]:
    rows = await conn.fetch(db.in_schema(CALLERS), left) if left else []
    return [row["job_id"] for row in rows][:_MOST_APART]


async def _mark(
    db: Database, conn: Raw, bulk_id: UUID, found: Sequence[Row], *, left: Sequence[UUID], place: tuple[int, UUID]
) -> Row:
    """Keep verdicts, put what is left into the next round, and end the operation when nothing is."""
    columns = ([row[column] for row in found] for column in ("job_id", "verdict", "code", "detail"))
    row = await conn.fetchrow(db.in_schema(_MARK), bulk_id, *columns, list(left), *place)
    if row is None:
        raise AssertionError("the operation's row is locked, and so it is there")
    return row


async def _cancel_apart(db: Database, bulk_id: BulkId, job_id: UUID) -> Row | None:
    """Cancel a job with its children, in a transaction of its own; None: it moves, and comes again in a later round."""
    ended: list[UUID] = []

    async def once(conn: Raw) -> Row | None:
        ended.clear()
        async with looking(conn):
            bulk = await conn.fetchrow(db.in_schema(_TAKE), bulk_id, None)
            if bulk is None:
                return None
            which = ([job_id], bulk["tenant"], bulk["states"], bulk_id)
            if not await conn.fetch(db.in_schema(HOLD), *which):
                return None
            verdict, family = await cancel_family(
                db, conn, JobId(job_id), reason=reason_of(bulk), tenant=bulk["tenant"]
            )
            if verdict is None:
                return None
            ended.extend(family)
            done = {"job_id": job_id, "verdict": _DONE, "code": None, "detail": verdict.value}
            return await _mark(db, conn, bulk_id, [done], left=(), place=(bulk["at_round"], bulk["at_job"]))

    row = await db.run(once)
    if row is not None:
        await notify(db, Wake.FINISHED, Wake.REVOKED)
        await tell_parents(db, ended)
    return row
