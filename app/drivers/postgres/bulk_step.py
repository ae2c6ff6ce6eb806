"""`step`: one batch of one operation, in one transaction: the operation's row, its jobs, their verdicts, the audit.

The row is locked first and waits for nobody; who has it is the only executor of that operation until its commit, so a
job is acted on once, and what a killed executor had begun never was. Jobs that take more than one statement each are
acted on one by one, after the batch. Called by any worker, and by who waits for an operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from ...domain.bulk import BulkAction, BulkId, BulkStep
from ...domain.edit import RunNowVerdict
from ...domain.job import JobId
from ...domain.outcome import CancelVerdict
from ..protocol import Wake
from .bulk_acts import reason_of
from .bulk_apart import CANCEL_APART, DELETE_APART, Apart, Took
from .bulk_audit import keep_done
from .bulk_cancel import CANCEL
from .bulk_delete import DELETE
from .bulk_edit import RESCHEDULE, RUN_NOW, SET_PRIORITY
from .bulk_retry import RELEASE, RETRY
from .bulk_view import COLUMNS, view_of
from .database import Database, Raw, Row
from .notify import REVOKES, notify
from .run_locks import looking
from .run_now import end_sleeps
from .waits import tell_parents


class Act(NamedTuple):
    """An action on a batch: its statement, who is woken after its commit, and the statement's own bind if it has one.

    `apart`: what of a batch is taken one by one. With it the action ends jobs, and the parents of those are told.
    """

    sql: str
    wakes: tuple[Wake, ...]
    bind: Callable[[Row], str | int | datetime] | None = None
    apart: Apart | None = None


ACTS = {
    BulkAction.CANCEL: Act(CANCEL, (Wake.FINISHED,), reason_of, apart=CANCEL_APART),
    BulkAction.RETRY: Act(RETRY, (Wake.READY,)),
    BulkAction.RELEASE: Act(RELEASE, (Wake.READY,)),
    BulkAction.DELETE: Act(DELETE, (Wake.FINISHED,), apart=DELETE_APART),
    BulkAction.RUN_NOW: Act(RUN_NOW, (Wake.READY,)),
    BulkAction.RESCHEDULE: Act(RESCHEDULE, (Wake.READY, Wake.DELAYED), lambda row: row["run_at"]),
    BulkAction.SET_PRIORITY: Act(SET_PRIORITY, (Wake.READY,), lambda row: row["priority"]),
}
_RUNNING, _ENDED = 0, 1
_FIRST = UUID(int=0)
# Jobs taken one by one, of one batch: each is a transaction, and a drain waits for the batch.
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
    alone: list[UUID]
    ends_sleeps: bool


async def step(
    db: Database, *, only: BulkId | None = None, after: BulkId | None = None, batch: int = 500
) -> BulkStep | None:
    """Act on the next batch of an operation; None: none runs, or somebody else has it in hand."""
    taken = await db.run(lambda conn: _batch(db, conn, only, after, batch))
    if taken is None:
        return None
    if taken.row["done_now"]:
        await notify(db, *taken.wakes)
    if taken.ends_sleeps:
        await end_sleeps(db)
    await tell_parents(db, taken.children)
    rows = [taken.row]
    apart = ACTS[BulkAction(taken.row["action"])].apart
    for job_id in taken.alone:
        row = None if apart is None else await _take_apart(db, apart, BulkId(taken.row["id"]), JobId(job_id))
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
        binds = (ids, bulk["tenant"], bulk["states"], bulk["by_ids"], *(() if act.bind is None else (act.bind(bulk),)))
        found = await conn.fetch(db.in_schema(act.sql), *binds)
        decided = {row["job_id"] for row in found}
        left = [job_id for job_id in ids if job_id not in decided]
        alone = await _alone(db, conn, act, left)
        # Were nothing left behind the last batch, the next would begin at the beginning.
        place = (items[-1]["round"], items[-1]["job_id"]) if items else (0, _FIRST)
        marked = await _mark(db, conn, bulk, found, left=left, place=place)
    is_told = any(row["detail"] == CancelVerdict.SIGNALLED for row in found)
    children = [] if act.apart is None else [row["job_id"] for row in found if row["is_child"]]
    ends_sleeps = any(row["detail"] == RunNowVerdict.SLEEP_ENDED for row in found)
    return _Batch(marked, (*act.wakes, *(REVOKES if is_told else ())), children, alone, ends_sleeps)


async def _alone(db: Database, conn: Raw, act: Act, left: Sequence[UUID]) -> list[UUID]:
    if act.apart is None or not left:
        return []
    rows = await conn.fetch(db.in_schema(act.apart.which), left)
    return [row["job_id"] for row in rows][:_MOST_APART]


async def _mark(
    db: Database, conn: Raw, bulk: Row, found: Sequence[Row], *, left: Sequence[UUID], place: tuple[int, UUID]
) -> Row:
    """Keep verdicts and the audit, put what is left into the next round, end the operation when nothing is."""
    await keep_done(db, conn, bulk, found)
    columns = ([row[column] for row in found] for column in ("job_id", "verdict", "code", "detail"))
    row = await conn.fetchrow(db.in_schema(_MARK), bulk["id"], *columns, list(left), *place)
    if row is None:
        raise AssertionError("the operation's row is locked, and so it is there")
    return row


async def _take_apart(db: Database, apart: Apart, bulk_id: BulkId, job_id: JobId) -> Row | None:
    """Act on one job in a transaction of its own; None: it moves, and comes again in a later round."""
    if apart.tells_first:
        await tell_parents(db, [job_id])

    async def once(conn: Raw) -> tuple[Took, Row] | None:
        async with looking(conn):
            bulk = await conn.fetchrow(db.in_schema(_TAKE), bulk_id, None)
            took = None if bulk is None else await apart.take(db, conn, job_id, bulk)
            if bulk is None or took is None:
                return None
            place = (bulk["at_round"], bulk["at_job"])
            return took, await _mark(db, conn, bulk, [took.row], left=(), place=place)

    done = await db.run(once)
    if done is None:
        return None
    took, row = done
    await notify(db, *took.wakes)
    await tell_parents(db, took.ended)
    return row
