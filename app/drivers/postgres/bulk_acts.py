"""What a bulk operation's actions have in common: one statement acts on a batch of jobs and says what became of each.

An action is a part in the middle of that statement, over the jobs `fit` whose state is one to be hit. It waits for no
token: those that somebody holds, and those that moved since the snapshot, are answered nothing, and come again in a
later round. What it took it names in `did`, what it may never take in `refused`. Owns no action; called by those.
"""

from __future__ import annotations

from ...domain.bulk import BulkVerdict
from ...domain.step import StepKind
from .buckets import TOKEN
from .database import Row
from .resolve import KIND_CODES

# Codes of `bulk_item.verdict`.
VERDICT_CODES = {BulkVerdict.DONE: 0, BulkVerdict.CHANGED: 1, BulkVerdict.FAILED: 2}
_DONE, _CHANGED, _FAILED = VERDICT_CODES.values()
# On a job that does not fit, or not any more.
UNFIT = f"case when $4::boolean then {_FAILED} else {_CHANGED} end"
# Of a suspended job, whose id is filled in: a time ends its wait, or one of several.
SLEEPS = f"""(
  select true from outlast.wait w where w.job_id = {{job_id}} and w.kind = {KIND_CODES[StepKind.SLEEP]} limit 1)"""  # noqa: S608  a code of our own

# Binds: $1 the batch's ids, $2 tenant, $3 states to be hit, $4 whether they were chosen by id, $5 the action's own.
OF_BATCH = f"""
with e as materialized (
  select e.*, t.state, (select n.name from outlast.job_name n where n.id = e.name_id) as name from (
    select j.* from unnest($1::uuid[]) i(id) cross join lateral (
      select j.id, j.seq, j.queue, j.priority, j.name_id, j.tenant, j.key_hash, j.fp, j.parent_id, j.limit_names,
        j.callback is not null as calls_back
      from outlast.job j
      where j.id = i.id and ($2::text is null or j.tenant = $2) offset 0) j) e
  left join lateral ({TOKEN}) t on true),
fit as materialized (select * from e where state = any($3::text[]))
"""  # noqa: S608  fragments of our own

_TAIL = f"""
select d.job_id, {_DONE}::smallint as verdict, null::text as code, d.detail,
  e.tenant, e.queue, e.name, e.state, e.parent_id is not null as is_child
from did d join e on e.id = d.job_id
union all
select r.job_id, {{refused}}, r.code, r.detail, null, null, null, null, false from refused r
union all
select i.id, {UNFIT},
  case when e.id is null then 'JOB_NOT_FOUND' else 'JOB_STATE_CONFLICT' end, e.state, null, null, null, null, false
from unnest($1::uuid[]) i(id) left join e on e.id = i.id
where e.id is null or e.state <> all($3::text[])"""  # noqa: S608  numbers of our own

NONE_REFUSED = """
refused as materialized (select null::uuid as job_id, null::text as code, null::text as detail where false)"""


def acting(part: str, *, refused: str = str(_FAILED)) -> str:
    """Give the whole statement around an action's part; `refused` is the verdict on what that refuses."""
    return f"{OF_BATCH.strip()},\n{part.strip()}{_TAIL.format(refused=refused)}"


def reason_of(row: Row) -> str:
    """Give the reason that a job of an operation is cancelled with."""
    return row["reason"] or f"cancelled by {row['made_by']}"
