"""Claim: take ready tokens in order and open an attempt on each, in one statement.

Owns the order (rank, then sequence, across queues), the gate on the worker's own row, and what is passed over: paused
queues and names the worker does not know. Of queues that let only so many of their jobs run it finds how many are next,
and leaves them to `claim_limited`. Looks by the low-water marks, and feeds them. Called by the claim loop; claims whose
reply was lost are `release`'s.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

from ...domain.errors import QueuesEmpty
from ...domain.job import ClaimedJob
from ..protocol import ClaimRequest
from .claim_limited import quotas_of, under_locks
from .claimable import PLACES, fits
from .database import Database, Raw
from .low_water import Horizon, Stretch
from .names import name_ids
from .pinned import names_of, true_name
from .queues import PAUSED
from .rows import BEHIND, ENVELOPE, claimed_job
from .set_aside import set_aside

# How often a claim over several queues looks again when somebody else took what it had planned to take.
_LOOKS = 4

# What a claim waits for before it looks; statements that do more put in front of it what has to be over by then.
MAY_CLAIM = """
(select lost_at is null and closed_at is null and lease_until > outlast.clock() from outlast.worker where id = $1)"""
# What the row of each queue says, read once; a queue without limits has none. How many run is counted for those alone
# that are limited. The count only says where to look: what is taken there is counted again, under a lock.
_GATE = f"""
gate as materialized (
  select s.queue, least(s.room, $5::int, l.places) as room, l.places is not null as is_limited
  from {{asked}}
  left join lateral (
    select {PAUSED} as is_paused, {PLACES} as places
    from outlast.queue q where q.name = s.queue offset 0) l on true
  where {MAY_CLAIM} and l.is_paused is not true)"""  # noqa: S608  fragments of our own

# A queue's tokens in claim order, above the low-water marks of this process: stretch by stretch, each one way down the
# index. The nested loop keeps the order of the stretches, and stops when it has enough.
_STRETCHES = "unnest($7::text[], $8::smallint[], $9::bigint[], $10::smallint[]) g(queue, rank, seq, ends)"
_WITHIN = f"""
r.queue = g.queue and (r.rank, r.seq) > (g.rank, g.seq) and r.rank < g.ends
        and {fits("$4::int[]", "$6::boolean")}
      order by r.rank, r.seq"""

# One queue: its index is in claim order, so tokens are locked as they are met and locked ones are stepped over.
_ONE_QUEUE = f"""
{_GATE.strip().replace("{asked}", "(select ($2::text[])[1] as queue, ($3::int[])[1] as room) s")},
quota as materialized (select queue, room as n from gate where not is_limited),
plan as materialized (
  select 0 as n, (select gate.queue || ' ' || room from gate where is_limited and room > 0) as limited)"""  # noqa: S608  same

# Several: the heads of all are merged without a lock to see how many of each are next; then so many are locked. Locking
# every queue's head up to its room would hide tokens from other workers that this one does not take.
_QUEUES = f"""
{_GATE.strip().replace("{asked}", "unnest($2::text[], $3::int[]) s(queue, room)")},
h as materialized (
  select x.*, s.is_limited from gate s
  cross join lateral (
    select y.* from {_STRETCHES} cross join lateral (
      select r.queue, r.rank, r.seq from outlast.ready r
      where {_WITHIN.strip()} limit s.room) y
    where g.queue = s.queue limit s.room) x),
nx as materialized (
  select queue, is_limited, count(*)::int as n
  from (select queue, is_limited from h order by rank, seq limit $5::int) x group by queue, is_limited),
quota as materialized (select queue, n from nx where not is_limited),
plan as materialized (
  select (select coalesce(sum(n), 0)::int from quota) as n,
    (select string_agg(queue || ' ' || nx.n, ',') from nx where is_limited) as limited)"""  # noqa: S608  same

_TAKE = """
pick as materialized (
  select x.ctid from quota cross join lateral (
    select y.ctid from {stretches} cross join lateral (
      select r.ctid from outlast.ready r
      where {within} limit quota.n for update skip locked) y
    where g.queue = quota.queue limit quota.n) x),
t as (
  delete from outlast.ready r where r.ctid = any(array(select ctid from pick))
  returning r.queue, r.rank, r.seq, r.job_id, r.name_id, (r.attempt + 1)::smallint as attempt,
    r.claim_no + 1 as claim_no, r.crashes, r.interrupts),
run as (
  insert into outlast.running(job_id, seq, worker, queue, rank, name_id, attempt, claim_no, crashes, interrupts)
  select job_id, seq, $1, queue, rank, name_id, attempt, claim_no, crashes, interrupts from t)"""
_TAKE = _TAKE.replace("{stretches}", _STRETCHES).replace("{within}", _WITHIN.strip())

# What a claim does, for statements that do more: binds $1 to $10.
TAKING_ONE = f"{_ONE_QUEUE.strip()},{_TAKE}"
TAKING_MANY = f"{_QUEUES.strip()},{_TAKE}"

# The envelope is read by a lateral with one sane plan, and outer: an inner join that finds nothing would leave a claim
# that nobody knows of.
# The row without a job comes first, in columns lent by their type: how many were planned stands in `name_id`, of which
# limited queues how many are next in `queue`, when it was in `created_at`, and where the claim stands among
# transactions in `seq` (xmin) and `timeout_ms` (xid; one that took nothing asks for no id). `settled` is for statements
# that do more. Rows are read by place: `rows.claimed_job`.
TAKEN = f"""
select null::uuid as job_id, limited as queue, null::smallint as rank,
  pg_snapshot_xmin(pg_current_snapshot())::text::bigint as seq, n as name_id, null::smallint as attempt,
  null::int as claim_no, null::smallint as crashes, null::smallint as interrupts, null::text as tenant,
  null::text as payload, null::smallint as max_attempts, null::smallint as max_crashes, outlast.clock() as created_at,
  null::uuid as run_id, null::timestamptz as run_at,
  (select pg_current_xact_id()::text::bigint from t limit 1) as timeout_ms, null::interval as deadline_in,
  null::text as key, null::uuid as parent_id, null::text as enqueued_by, null::text as traceparent,
  null::text[] as tags, null::text as meta, null::boolean as calls_back,
  {{settled}} as settled
from plan
union all
select t.job_id, t.queue, t.rank, t.seq, t.name_id, t.attempt, t.claim_no, t.crashes, t.interrupts,
  {ENVELOPE}, null
from t left join lateral (select * from outlast.job j where j.id = t.job_id offset 0) j on true
"""  # noqa: S608  a fragment of our own
_TAKEN = TAKEN.replace("{settled}", "null::bigint[]")
CLAIM_ONE = f"with {TAKING_ONE}{_TAKEN}"
CLAIM_MANY = f"with {TAKING_MANY}{_TAKEN}"
# Of limited queues alone, for who has their locks.
CLAIM_LIMITED = CLAIM_MANY.replace("where not is_limited)", "where is_limited)")

# Places of columns: of every row (a tenant has every envelope), of the first, and of what `settled` adds to the first.
JOB, QUEUE, RANK, SEQ, TENANT = 0, 1, 2, 3, 9
XMIN, PLANNED, AT, XID, SETTLED = 3, 4, 13, 16, BEHIND
_TOKEN = itemgetter(QUEUE, RANK, SEQ)

# Gives a claim's binds for the connection it runs on: the marks it looks by may not hold on a new one.
BindsOn: TypeAlias = Callable[[Raw], tuple[object, ...]]
# Runs one of the two texts, for one queue or for several, and gives what it returned.
Look: TypeAlias = Callable[[bool, BindsOn], Awaitable[list[Any]]]


async def claim(db: Database, request: ClaimRequest) -> tuple[ClaimedJob, ...]:
    """Take ready jobs; committed when this returns. Nothing for a worker whose lease has passed or that is closed.

    Raises:
        QueuesEmpty: the request names no queue.
    """
    return await claim_by(db, request, first=None)


async def claim_by(db: Database, request: ClaimRequest, *, first: Look | None) -> tuple[ClaimedJob, ...]:
    """Claim; the first look is taken by `first`, where one is given, which may do other things in its statement.

    Raises:
        QueuesEmpty: the request names no queue.
    """
    if not request.shares:
        raise QueuesEmpty("a claim named no queue", fix="name at least one queue, such as OUTLAST_QUEUES=default:10")

    async def look(is_one: bool, binds_on: BindsOn) -> list[Any]:  # noqa: FBT001 - see `Look`
        sql = db.in_schema(CLAIM_ONE if is_one else CLAIM_MANY)
        return await db.run(lambda conn: conn.fetch(sql, *binds_on(conn)))

    claimed = await names_of(db, request.worker_id, request.names)
    names = await name_ids(db, claimed)
    ids, name_of = list(names.values()), {number: true_name(name) for name, number in names.items()}
    room = {share.queue: share.room for share in request.shares}
    found: list[tuple[int, int, ClaimedJob]] = []
    for turn in range(_LOOKS):
        open_queues = {queue: free for queue, free in room.items() if free > 0}
        total = request.room - len(found)
        if not (first and turn == 0) and (total <= 0 or not open_queues):
            break
        asked = (request.worker_id, list(open_queues), list(open_queues.values()), ids, total, request.alone_ok)
        head, *taken = await _looked(db, request, first if first and turn == 0 else look, asked)
        quotas = quotas_of(head[QUEUE])
        taken_there = await _take_limited(db, request, quotas, ids) if quotas else []
        at = head[AT]
        whole = [row for row in (*taken, *taken_there) if row[TENANT] is not None]
        found += [
            (row[RANK], row[SEQ], claimed_job(row, name_of=name_of, worker_id=request.worker_id, at=at))
            for row in whole
        ]
        if taken_there:
            found = _marked(db, found, {row[SEQ] for row in taken_there})
        count = len(taken) + len(taken_there)
        if len(whole) < count:
            bare = [(row[JOB], row[SEQ]) for row in (*taken, *taken_there) if row[TENANT] is None]
            await set_aside(db, request.worker_id, bare)
        elif head[PLANNED] + sum(quotas.values()) <= count:
            break
        for row in whole:
            room[row[QUEUE]] -= 1
        if len(taken_there) < sum(quotas.values()):
            room |= dict.fromkeys(quotas, 0)  # others were there first, or are at it: what is left is for other queues
    found.sort()  # no two have one sequence
    return tuple([job for _, _, job in found])


def _marked(
    db: Database, found: list[tuple[int, int, ClaimedJob]], limited: set[int]
) -> list[tuple[int, int, ClaimedJob]]:
    """Mark the claims that have places of limited queues."""
    db.limited.began(limited)
    return [(rank, seq, job._replace(is_limited=True) if seq in limited else job) for rank, seq, job in found]


async def _take_limited(db: Database, request: ClaimRequest, quotas: dict[str, int], ids: list[int]) -> list[Any]:
    """Take of limited queues what is still free of their places, at most these numbers of jobs."""
    counts = list(quotas.values())
    asked = (request.worker_id, list(quotas), counts, ids, sum(counts), request.alone_ok)

    async def look(_is_one: bool, binds_on: BindsOn) -> list[Any]:  # noqa: FBT001 - see `Look`
        sql = db.in_schema(CLAIM_LIMITED)
        rows = await under_locks(db, list(quotas), lambda conn: conn.fetch(sql, *binds_on(conn)))
        return [None] if rows is None else rows

    return (await _looked(db, request, look, asked))[1:]


async def _looked(db: Database, request: ClaimRequest, look: Look, asked: tuple[Any, ...]) -> list[Any]:
    """Look once, by the low-water marks, and learn from what was taken."""
    water, queues, life = db.low_water, asked[1], 0

    def binds_on(conn: Raw) -> tuple[object, ...]:
        nonlocal life
        life = water.begin(conn, (request.names, len(asked[3])))
        return (*asked, *columns_of(water.stretches(queues)))

    try:
        head, *taken = await look(len(queues) == 1, binds_on)
    except BaseException:
        # Whether it was committed is unknown: other claims of this process may have passed over what it had locked.
        water.forget()
        raise
    if request.alone_ok and taken:
        # A claim that passed over jobs that must run alone looks by the marks and leaves them as they are.
        water.learn(life, map(_TOKEN, taken), Horizon(head[XMIN], head[XID]))
    db.low_look.after_claim(asked[3])
    return [head, *taken]


def columns_of(stretches: Sequence[Stretch]) -> tuple[list[object], ...]:
    """Give stretches as the claim statements take them, `$7` and on."""
    return tuple(list(column) for column in zip(*stretches, strict=True)) or ([], [], [], [])
