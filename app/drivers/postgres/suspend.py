"""Suspend: a run gives its worker back until one of its waits is over.

Owns the order of its locks and the decision whether the job waits or is ready at once. Locks come first: of what new
waits are for, of the running row, of the waits the store has already. Only then, in a new statement, it looks at what
has ended by then: whatever ends one of its waits has either committed before that, or waits for this commit. Called
by `settle`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...domain.job import Enqueued, JobId, NewJob
from ...domain.outcome import Settlement
from ...domain.step import NewWait
from ..protocol import Wake
from .buckets import DONE, NOT_STARTED
from .call_cycle import callers_above, locks_of, refuse_circles
from .database import Database, Raw
from .enqueue import store_within
from .names import name_ids
from .resolve import CHILD, KIND_CODES
from .run_locks import child_lock, event_lock

_TENANT = "select tenant from outlast.job where id = $1"

# The claim first, then the waits there are; nobody ends one of those before this commits.
FENCE = """
with r as materialized (
  select r.job_id from outlast.running r
  where r.job_id = $1 and r.seq = $2 and r.claim_no = $3
    and r.worker = (
      select w.id from outlast.worker w
      where w.id = $4 and w.lost_at is null and w.closed_at is null and w.lease_until > outlast.clock())
  for update),
w as materialized (
  select w.name from outlast.wait w where w.job_id = any(array(select job_id from r)) order by w.name for update)
select array(select name from w) || array(
  select t.name from outlast.step t
  where t.run_id = (select coalesce(j.run_id, j.id) from outlast.job j where j.id = $1) and t.name = any($5::text[]))
  as known from r"""

# Of a wait: it is no call, or its child has not failed. Of one that has, the run is told now.
LIVES = f"(s.is_child_gone or s.child_state <> {DONE}) is not true"

# `since` is when the job was enqueued or staged, or what it was forked from was. `i` is what the run waits for now. Of
# events the run has not taken, the n-th is for the n-th wait of its key.
SUSPEND = f"""
with e as materialized (
  select j.id, coalesce(j.run_id, j.id) as run_id, j.tenant, least(j.created_at, j.events_from) as since, j.name_id,
    array(select t.event_seq from outlast.step t
      where t.run_id = coalesce(j.run_id, j.id) and t.event_seq is not null) as taken
  from outlast.job j where j.id = $1),
i as materialized (
  select i.*, case when i.event is not null and not i.is_known and not i.from_now
    then row_number() over (
      partition by i.event, i.key, i.is_known, i.from_now order by i.ord) end as nth
  from unnest($2::text[], $3::smallint[], $4::text[], $5::int[], $6::boolean[], $7::interval[], $8::timestamptz[],
    $9::text[], $10::text[], $11::boolean[], $12::uuid[])
    with ordinality i(name, kind, branch, number, is_known, delay, until, event, key, from_now, child_id, ord)),
stays as materialized (
  select w.*, i.name is not null as is_asked, f.state as child_state, f.result,
    w.child_id is not null and f.state is null and c.id is null as is_child_gone
  from (select w.*, w.ctid from outlast.wait w where w.job_id = $1) w
  left join i on i.name = w.name and i.is_known {CHILD}),
fresh as materialized (
  select w.*, ev.seq as event_seq, ev.payload, f.state as child_state, f.result,
    w.child_id is not null and f.state is null and c.id is null as is_child_gone
  from i w cross join e
  left join lateral (
    select v.seq, v.payload from (
      select v.seq, v.payload from outlast.event v
      where v.tenant = e.tenant and v.name = w.event and v.key = w.key and v.emitted_at >= e.since
        and w.nth is not null offset 0) v
    where v.seq <> all(e.taken) order by v.seq offset coalesce(w.nth, 1) - 1 limit 1) ev on true {CHILD}
  where not w.is_known),
over as materialized (
  select name, kind, branch, number, began_at, result as value, null::bigint as event_seq, child_id, code_version
  from stays where child_state = {DONE} and is_asked
  union all
  select name, kind, branch, number, outlast.clock(), case when event_seq is null then result else payload end,
    event_seq, child_id, null
  from fresh where event_seq is not null or child_state = {DONE}),
now as materialized (
  select (select count(*) from over) > 0
    or (select count(*) from i where i.is_known) > (select count(*) from stays where is_asked)
    or exists (select from stays where is_asked and (is_child_gone or child_state <> {DONE}))
    or exists (select from fresh where is_child_gone or child_state <> {DONE}) as is_ready),
gone as (delete from outlast.running where job_id = $1 returning *),
own as materialized (
  select w.code_version from gone g cross join lateral (
    select w.code_version from outlast.worker w where w.id = g.worker offset 0) w),
rdy as (
  insert into outlast.ready(queue, rank, job_id, name_id, attempt, claim_no, crashes, interrupts)
  select g.queue, g.rank & -2, g.job_id, e.name_id, g.attempt - 1, g.claim_no, g.crashes, g.interrupts
  from gone g cross join e cross join now where now.is_ready),
sus as (
  insert into outlast.suspended(job_id, queue, rank, name_id, attempt, claim_no, crashes, interrupts, reason)
  select g.job_id, g.queue, g.rank & -2, e.name_id, g.attempt - 1, g.claim_no, g.crashes, g.interrupts,
    (select kind from i order by ord limit 1)
  from gone g cross join e cross join now where not now.is_ready),
stp as (
  insert into outlast.step(run_id, name, kind, branch, number, value, claim_no, code_version, started_at, event_seq,
    child_id)
  select e.run_id, o.name, o.kind, o.branch, o.number, o.value, g.claim_no,
    coalesce(o.code_version, (select code_version from own), ''), o.began_at, o.event_seq, o.child_id
  from over o cross join e cross join gone g order by o.began_at, o.number on conflict do nothing),
ended as (
  delete from outlast.wait where ctid = any(array(
    select s.ctid from stays s where s.child_state = {DONE} and s.is_asked))),
asked as (
  update outlast.wait w set awaited = not w.awaited from stays s
  where w.job_id = $1 and w.name = s.name and w.awaited <> (s.is_asked and {LIVES})
    and (s.is_asked and s.child_state = {DONE}) is not true),
wts as (
  insert into outlast.wait(job_id, name, kind, branch, number, due_at, tenant, event, event_key, child_id, code_version,
    awaited)
  select $1, f.name, f.kind, f.branch, f.number,
    case when f.until is not null or f.delay is not null
      then greatest(coalesce(f.until, outlast.clock() + f.delay), outlast.clock()) end,
    case when f.event is not null then e.tenant end, f.event, f.key, f.child_id,
    coalesce((select code_version from own), ''), {LIVES.replace("s.", "f.")}
  from fresh f cross join e cross join gone
  where f.event_seq is null and (f.child_state = {DONE}) is not true
  on conflict do nothing),
begun as (delete from outlast.expiry where job_id = $1 and kind = {NOT_STARTED})
select now.is_ready from now"""  # noqa: S608  fragments of our own


class SharedError(Exception):
    """A call is answered by a job that was there before: its lock comes before everything else, so begin again."""


@dataclass(slots=True)
class Suspension:
    """One settlement on its way. It may be tried again: children that turned out to be others' are locked first then.

    `is_repeated`: an id of a child that is there already is this very child.
    """

    settlement: Settlement
    waits: Sequence[NewWait]
    names: Mapping[str, int] = field(default_factory=dict)
    shared: set[JobId] = field(default_factory=set)
    circle_locks: set[int] = field(default_factory=set)
    is_repeated: bool = False

    async def prepare(self, db: Database) -> None:
        """Learn, before the transaction, what it needs."""
        self.names = await name_ids(db, {one.child.name for one in self.waits if one.child is not None})

    async def locks(self, db: Database, conn: Raw) -> list[int]:
        """Give the locks of what the run begins to wait for."""
        shared = [child_lock(db, child) for child in self.shared]
        shared += self.circle_locks
        wanted = [(one.event, one.key or "") for one in self.waits if one.event is not None and not one.is_known]
        if not wanted:
            return shared
        tenant = await conn.fetchval(db.in_schema(_TENANT), self.settlement.token.job_id)
        return shared + [event_lock(db, tenant or "", event, key) for event, key in wanted]

    async def settle(self, db: Database, conn: Raw) -> tuple[Wake, ...] | None:
        """Suspend, with the locks taken, and give who is to be woken; None: the claim is gone.

        Raises:
            OutlastError: a child was refused, and with it the settlement.
            SharedError: the transaction has to begin again.
        """
        token = self.settlement.token
        fence = token.job_id, token.fence, token.claim_no, token.worker_id
        held = await conn.fetchrow(db.in_schema(FENCE), *fence, [one.name for one in self.waits])
        if held is None:
            return None
        known = set(held["known"])
        waits = [replace(one, is_known=True) if one.name in known else one for one in self.waits]
        columns = _columns(waits, await self._children(db, conn, waits))
        is_ready = await conn.fetchval(db.in_schema(SUSPEND), token.job_id, *columns)
        return _wakes(waits, is_ready=is_ready)

    async def _children(self, db: Database, conn: Raw, waits: Sequence[NewWait]) -> dict[str, JobId]:
        """Enqueue the children of new calls."""
        calls = {one.name: one.child for one in waits if one.child is not None and not one.is_known}
        if not calls:
            return {}
        jobs: list[NewJob] = list(calls.values())
        answers = await store_within(db, conn, jobs, self.names, is_repeated=self.is_repeated, is_part=True)
        found: dict[str, JobId] = {}
        for name, answer in zip(calls, answers, strict=True):
            if not isinstance(answer, Enqueued):
                raise answer
            found[name] = answer.id
        await self._refuse_circles(db, conn, [(name, job, found[name]) for name, job in calls.items()])
        return found

    async def _refuse_circles(self, db: Database, conn: Raw, answered: Sequence[tuple[str, NewJob, JobId]]) -> None:
        """Refuse calls that jobs answer which were there before and wait for this one."""
        there = [(name, job, answer) for name, job, answer in answered if answer != job.id]
        if not there:
            return
        caller = self.settlement.token.job_id
        callers = await callers_above(db, conn, caller)
        locks = locks_of(db, callers, caller, [answer for *_, answer in there])
        if not (locks <= self.circle_locks and {answer for *_, answer in there} <= self.shared):
            self.circle_locks |= locks
            self.shared |= {answer for *_, answer in there}
            raise SharedError
        refuse_circles(callers, caller, there)


def _wakes(waits: Sequence[NewWait], *, is_ready: bool) -> tuple[Wake, ...]:
    new = [one for one in waits if not one.is_known]
    has_children = any(one.child is not None for one in new)
    has_times = any(one.delay is not None or one.until is not None for one in new)
    return (*((Wake.READY,) if is_ready or has_children else ()), *((Wake.DELAYED,) if has_times else ()))


def _columns(waits: Sequence[NewWait], children: Mapping[str, JobId]) -> list[list[Any]]:
    rows = [
        (
            *(one.name, KIND_CODES[one.kind], one.place.branch, one.place.number, one.is_known, one.delay, one.until),
            *(one.event, (one.key or "") if one.event is not None else None, one.from_now, children.get(one.name)),
        )
        for one in waits
    ]
    return [list(column) for column in zip(*rows, strict=True)]
