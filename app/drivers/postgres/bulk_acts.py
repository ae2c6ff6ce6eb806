"""What a bulk operation's actions have in common: one statement acts on a batch of jobs and says what became of each.

An action is a part in the middle of that statement, over the jobs `fit` whose state is one to be hit. It waits for no
token: those that somebody holds, and those that moved since the snapshot, are answered nothing, and come again in a
later round. What it took it names in `did`, what it may never take in `refused`. Owns no action; called by those.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from ...domain.bulk import BulkVerdict
from ..protocol import Wake
from .buckets import TOKEN
from .database import Row

# Codes of `bulk_item.verdict`.
VERDICT_CODES = {BulkVerdict.DONE: 0, BulkVerdict.CHANGED: 1, BulkVerdict.FAILED: 2}
_DONE, _CHANGED, _FAILED = VERDICT_CODES.values()

# Binds: $1 the batch's ids, $2 tenant, $3 states to be hit, $4 whether they were chosen by id, $5 the action's own.
# A job that has no token in the snapshot is on its way from one bucket to another.
OF_BATCH = f"""
with e as materialized (
  select e.*, t.state from (
    select j.* from unnest($1::uuid[]) i(id) cross join lateral (
      select j.id, j.seq, j.queue, j.priority, j.name_id, j.key_hash, j.fp, j.parent_id from outlast.job j
      where j.id = i.id and ($2::text is null or j.tenant = $2) offset 0) j) e
  left join lateral ({TOKEN}) t on true),
fit as materialized (select * from e where state = any($3::text[]))
"""  # noqa: S608  fragments of our own

_TAIL = f"""
select d.job_id, {_DONE}::smallint as verdict, null::text as code, d.detail,
  (select e.parent_id from e where e.id = d.job_id) is not null as is_child
from did d
union all
select r.job_id, {_FAILED}, r.code, r.detail, false from refused r
union all
select i.id, case when $4::boolean then {_FAILED} else {_CHANGED} end,
  case when e.id is null then 'JOB_NOT_FOUND' else 'JOB_STATE_CONFLICT' end, e.state, false
from unnest($1::uuid[]) i(id) left join e on e.id = i.id
where e.id is null or e.state <> all($3::text[])"""  # noqa: S608  numbers of our own

NONE_REFUSED = """
refused as materialized (select null::uuid as job_id, null::text as code, null::text as detail where false)"""


def acting(part: str) -> str:
    """Give the whole statement around an action's part."""
    return f"{OF_BATCH.strip()},\n{part.strip()}{_TAIL}"


class Act(NamedTuple):
    """An action on a batch: its statement, its own binds if it has any, and who is to be woken after its commit.

    `ends_jobs`: the parents of what it took are told, and jobs that call others are left to be taken one by one.
    """

    sql: str
    wakes: tuple[Wake, ...]
    binds: Callable[[Row], tuple[str | int | datetime | None, ...]] = lambda _: ()
    ends_jobs: bool = False
