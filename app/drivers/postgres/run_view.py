"""`history` and `run`: what a run has recorded and waits for, each read in one statement and so in one snapshot.

`history` is a worker's, asked once per attempt; `run` is for readers and adds lines, progress and children. A wait for
a child that failed says how the child ended: by its bucket, with its last error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...domain.job import JobId, RunId
from ...domain.ledger import error_of_end
from ...domain.state import State
from ...domain.step import LogLine, Place, ProgressView, RunHistory, RunView, StepView, WaitView
from .buckets import CANCELLED, DEAD
from .database import Database, Row
from .resolve import CHILD, KINDS
from .rows import plain
from .tenant_wall import behind

MOST_CHILDREN = 100
_STEP, _WAIT, _LINE, _PROGRESS, _CHILD, _JOB = range(6)

_STEPS = f"""
select {_STEP} as part, s.seq, s.name, s.kind, s.branch, s.number, s.value, s.claim_no, s.code_version,
  s.started_at as began_at, s.ended_at as due_at, s.event_seq is not null as has_event, s.child_id,
  null::text as event, null::text as key, null::text as child_state, null::text as child_reason,
  null::text as error_type, null::text as error_message, null::text as error_code, null::float8 as amount
from outlast.step s where s.run_id = {{run}}"""  # noqa: S608  numbers of our own
WAIT_COLUMNS = (
    *("part", "seq", "name", "kind", "branch", "number", "value", "claim_no", "code_version", "began_at", "due_at"),
    *("has_event", "child_id", "event", "key", "child_state", "child_reason", "error_type", "error_message"),
    *("error_code", "amount"),
)
WAITS = f"""
select {_WAIT} as part, null::bigint as seq, w.name, w.kind, w.branch, w.number, null::text as value,
  null::int as claim_no, w.code_version, w.began_at, w.due_at,
  w.child_id is not null and f.state is null and c.id is null as has_event,
  w.child_id, w.event, w.event_key as key,
  case f.state when {DEAD} then '{State.DEAD}' when {CANCELLED} then '{State.CANCELLED}' end as child_state,
  f.reason as child_reason, a.error_type, a.error_message, a.error_code, null::float8 as amount
from outlast.wait w {CHILD}
left join lateral (
  select a.error_type, a.error_message, a.error_code from outlast.attempt a
  where a.job_id = w.child_id and f.state in ({DEAD}, {CANCELLED}) order by a.number desc limit 1) a on true
where w.job_id = {{job}}"""  # noqa: S608  same

HISTORY = f"""
{_STEPS.replace("{run}", "$2")}
union all
{WAITS.replace("{job}", "$1")}
order by part, seq, began_at, number, name"""

# Of a reader's steps those up to the last that it asks values of; where it asks for all, nobody looks which that is.
_VALUE = "case when $4::bigint is null or s.seq <= (select seq from v) then s.value end as value,"
# `seq` of a part without one is its place in its own order.
_RUN = f"""
with e as materialized (
  select j.id, coalesce(j.run_id, j.id) as run_id from outlast.job j
  where j.id = $1 and ($2::text is null or j.tenant = $2)),
v as materialized (
  select max(s.seq) as seq from (
    select s.seq from outlast.step s where s.run_id = (select run_id from e) and s.seq > $3
    order by s.seq limit $4::bigint) s)
{_STEPS.replace("{run}", "(select run_id from e)").replace("s.value,", _VALUE)} and s.seq > $3
union all
{WAITS.replace("{job}", "(select id from e)")}
union all
select {_LINE}, l.seq, null, null, null, null, l.message, l.claim_no, null, l.at, null, null, null, null, null, null,
  null, null, null, null, null
from outlast.run_line l where l.job_id = (select id from e) and l.seq > $3
union all
select {_PROGRESS}, null, null, null, null, null, p.message, p.claim_no, null, p.at, null, null, null, null, null, null,
  null, null, null, null, p.value
from outlast.progress p where p.job_id = (select id from e)
union all
select {_CHILD}, null, null, null, null, null, null, null, null, null, null, null, k.id, null, null, null, null, null,
  null, null, null
from (
  select id from (
    (select j.id from outlast.job j where j.parent_id = (select id from e)
      and ($2::text is null or j.tenant = $2) order by j.id limit {MOST_CHILDREN})
    union select s.child_id from outlast.step s where s.run_id = (select run_id from e)
    union select w.child_id from outlast.wait w where w.job_id = (select id from e)) k
  where id is not null order by id limit {MOST_CHILDREN}) k
union all
select {_JOB}, null, null, null, null, null, null, null, null, null, null, null, e.id, null, null, null, null, null,
  null, null, null
from e
order by part, seq, began_at, number, name, child_id"""  # noqa: S608  same


async def history(db: Database, job_id: JobId, run_id: RunId) -> RunHistory:
    """Give what is recorded of a run and what it waits for."""
    rows = await db.run(lambda conn: conn.fetch(db.in_schema(HISTORY), job_id, run_id))
    return _history(rows)


async def run(
    db: Database, job_id: JobId, *, tenant: str | None = None, after: int = 0, values: int | None = None
) -> RunView | None:
    """Give a job's run for readers, or None; of steps and lines those numbered after `after`."""
    rows = await behind(db, tenant, lambda conn: conn.fetch(db.in_schema(_RUN), job_id, tenant, after, values))
    if not rows or rows[-1]["part"] != _JOB:
        return None
    progress = [_progress(row) for row in rows if row["part"] == _PROGRESS]
    return RunView(
        history=_history(rows),
        lines=tuple(
            LogLine(seq=row["seq"], at=row["began_at"], claim_no=row["claim_no"], message=row["value"])
            for row in rows
            if row["part"] == _LINE
        ),
        progress=progress[0] if progress else None,
        children=tuple(JobId(plain(row["child_id"])) for row in rows if row["part"] == _CHILD),
    )


def _history(rows: Sequence[Row]) -> RunHistory:
    return RunHistory(
        steps=tuple(_step(row) for row in rows if row["part"] == _STEP),
        waits=waits_of(row for row in rows if row["part"] == _WAIT),
    )


def waits_of(rows: Iterable[Row], *, prefix: str = "") -> tuple[WaitView, ...]:
    """Give the waits that rows of `WAITS` tell of, whose columns may have a prefix to their names."""
    return tuple(_wait({name: row[prefix + name] for name in WAIT_COLUMNS}) for row in rows)


def _step(row: Row) -> StepView:
    return StepView(
        seq=row["seq"],
        **_placed(row),
        value=row["value"],
        claim_no=row["claim_no"],
        started_at=row["began_at"],
        ended_at=row["due_at"],
        has_event=row["has_event"],
    )


def _wait(row: Row) -> WaitView:
    child_state = None if row["child_state"] is None else State(row["child_state"])
    of_end = error_of_end(row["child_reason"]) if child_state is State.DEAD and row["error_type"] is None else None
    return WaitView(
        **_placed(row),
        began_at=row["began_at"],
        due_at=row["due_at"],
        event=row["event"],
        key=row["key"],
        child_state=child_state,
        is_child_gone=row["has_event"],
        child_error_type=row["error_type"] if of_end is None else of_end.type,
        child_error_message=row["error_message"] if of_end is None else of_end.message,
        child_error_code=row["error_code"] if of_end is None else of_end.code,
    )


def _placed(row: Row) -> dict[str, Any]:
    return {
        "name": row["name"],
        "kind": KINDS[row["kind"]],
        "place": Place(row["branch"], row["number"]),
        "code_version": row["code_version"],
        "child_id": None if row["child_id"] is None else JobId(plain(row["child_id"])),
    }


def _progress(row: Row) -> ProgressView:
    return ProgressView(value=row["amount"], message=row["value"], at=row["began_at"])
