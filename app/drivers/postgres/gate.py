"""`admit`: limited jobs, and those of fair queues, leave the gate with their slots, whole or not at all.

Owns the one transaction in which it is decided about what `gate_look` has found: the keys are locked in the order of
their hashes, passing over those that somebody else has, and only then, in a new statement, it is counted what of them
is held, and which of the jobs are still there. So no key is ever over-held, nobody is parked for the sake of a job that
is not taken, and nobody waits here: unlimited jobs least of all, whose claims and settles touch none of these rows.
What lacks a key is parked at it, and met again once that key is open. Turns are moved on behind that transaction, as
nobody is to wait for its commit: what a process that dies in between does not say is lost for nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from ...domain.errors import DriverUnavailable, QueuesEmpty
from ...domain.job import ClaimedJob, LimitKey
from ...domain.limit import Admitted
from ..protocol import ClaimRequest
from .claim import MAY_CLAIM
from .claim_limited import PATIENCE
from .claimable import PLACES
from .database import Database, Raw
from .gate_decision import Candidate, Decision, Key
from .gate_free import GIVEN, LEFT, decide_free
from .gate_look import look
from .limited import LOCK, LOCK_NOT_HAD, Guarded, lock_keys
from .names import name_ids
from .pinned import names_of, true_name
from .queues import PAUSED
from .rows import BEHIND, claimed_job
from .run_locks import looking
from .turns import move

# How many are looked at in one turn, at least: most of them are parked once, and not looked at again.
_LOOKED_AT = 64
_TURNS = 8

# Waits for no transaction but other inserts of the same key, each one statement: a key that is there is not met again,
# whoever has it. That is asked by a scalar: `exists` may be planned as a hash of all keys.
NEW_KEYS = """
insert into outlast.limit_key(hash, name, "limit", key)
select u.* from unnest($1::uuid[], $2::text[], $3::text[], $4::text[]) u(hash, name, "limit", key)
where (select true from outlast.limit_key k where k.hash = u.hash limit 1) is not true
order by u.hash on conflict do nothing"""
LOCK_KEYS = """
select k.hash from outlast.limit_key k where k.hash = any($1::uuid[]) order by k.hash for update skip locked"""
_KNOWN_KEYS = "select k.hash from outlast.limit_key k where k.hash = any($1::uuid[])"
# The look is older than the locks: only those of its jobs are decided about that are there now, in nobody's hands. Of
# those without a key, in `$3`, no more are taken into these than there is room for: they start, and the rest is left to
# others. The nested loop keeps their order, and stops when it has enough. Of the queues in `$5`, whose locks are had,
# it tells how many places are left; one whose limit has gone meanwhile has room for any number.
COUNT_KEYS = f"""
with h as materialized (
  select g.job_id, g.queue from outlast.gate g where g.job_id = any($2::uuid[]) for update skip locked),
f as materialized (
  select g.job_id, g.queue from unnest($3::uuid[]) u(job_id)
  cross join lateral (
    select g.job_id, g.queue from outlast.gate g where g.job_id = u.job_id for update skip locked) g
  limit $4::int)
select h.job_id, h.queue, null::uuid as hash, null::float8 as tokens, null::timestamptz as filled_at,
  null::interval as per, null::timestamptz as at, null::int as n, null::bigint as held
from (select * from h union all select * from f) h
union all
select null, null, k.hash, k.tokens, k.filled_at, r.per, outlast.clock(),
  case when r.declared is not null then coalesce(r.override, r.declared) end,
  (select count(*) from outlast.slot s where s.hash = k.hash)
from outlast.limit_key k
left join lateral (
  select r.declared, r.override, r.per from outlast.limit_rule r
  where r.name = k.name and r.limit = k.limit offset 0) r on true
where k.hash = any($1::uuid[])
union all
select null, q.name, null, null, null, null, null, {PLACES}, null
from outlast.queue q where q.name = any($5::text[]) and q.concurrency is not null"""  # noqa: S608  a fragment of our own

# Who is parked at a key is asked by a scalar: `exists` may be planned as a hash of the whole gate.
# The jobs are locked already. One whose queue has been paused or limited since the look is passed over, and so are all
# once the lease is over: then the decision has not come true, and none of it is kept. Binds: `$2` admitted, `$3` and
# `$4` their slots; `$5` to `$7` who is parked where and why; `$8` to `$11` what is left of the keys: tokens, since
# when, and from when on there is room for those parked; `$12` the queues whose places are counted.
ADMIT = f"""
with t as (
  delete from outlast.gate g where g.ctid = any(array(
    select x.ctid from outlast.gate x where x.job_id = any($2::uuid[]))) and {MAY_CLAIM.strip()}
    and not exists (
      select from outlast.queue q where q.name = g.queue
        and ({PAUSED} or (q.concurrency is not null and q.name <> all($12::text[])))){LEFT},
slt as (
  insert into outlast.slot(hash, job_id, seq, worker, claim_no)
  select u.hash, t.job_id, t.seq, $1, t.claim_no from t
  cross join lateral (
    select u.hash from unnest($3::uuid[], $4::uuid[]) u(job_id, hash) where u.job_id = t.job_id offset 0) u),
prk as (
  update outlast.gate g set (parked, why) = (
    select u.hash, u.why from unnest($5::uuid[], $6::uuid[], $7::text[]) u(job_id, hash, why)
    where u.job_id = g.job_id)
  where g.ctid = any(array(
    select x.ctid from outlast.gate x where x.job_id = any($5::uuid[])))),
kys as (
  update outlast.limit_key k set tokens = u.tokens, used_at = outlast.clock(),
    filled_at = u.filled_at,
    open_at = case when u.open_at is not null and (
        u.hash = any($6::uuid[])
        or (select true from outlast.gate g where g.parked = u.hash and g.job_id <> all($2::uuid[]) limit 1) is true)
      then u.open_at end
  from unnest($8::uuid[], $9::float8[], $10::timestamptz[], $11::timestamptz[]) u(hash, tokens, filled_at, open_at)
  where k.hash = u.hash and k.hash = any($8::uuid[])){GIVEN}"""  # noqa: S608  same


class _Turn(NamedTuple):
    """What a transaction came to; `missing` are keys that it could not lock because nobody has used them before."""

    decision: Decision
    taken: list[Any]
    missing: set[UUID]


class _NotTrueError(Exception):
    """The transaction goes back: a queue was paused or limited, or the lease ended, since the look."""


async def admit(db: Database, request: ClaimRequest) -> Admitted:
    """Take limited jobs whose limits let them start; committed when this returns.

    Nothing for a worker whose lease has passed or that is closed. What it took and could not say is reconciled as a
    claim is, and the slots with it.

    Raises:
        QueuesEmpty: the request names no queue.
    """
    if not request.shares:
        raise QueuesEmpty("a claim named no queue", fix="name at least one queue, such as OUTLAST_QUEUES=default:10")
    names = await name_ids(db, await names_of(db, request.worker_id, request.names))
    name_of = {number: true_name(name) for name, number in names.items()}
    rooms = {share.queue: share.room for share in request.shares}
    jobs: list[ClaimedJob] = []
    is_contended = is_more = False
    next_in: timedelta | None = None
    for _ in range(_TURNS):
        room = request.room - len(jobs)
        if room <= 0:
            break
        found, may_be_more = await look(db, request, rooms, name_of, max(room, _LOOKED_AT))
        if not found:
            is_more = may_be_more
            if may_be_more:
                continue
            break
        decided, taken = await _decide(db, request, found, room, rooms)
        # What was decided and did not come true was not taken.
        jobs += [_claimed(db, *pair, name_of, request) for pair in zip(decided.admitted, taken, strict=False)]
        is_contended |= decided.is_contended
        waits = [wait for wait in (next_in, decided.next_in()) if wait is not None]
        next_in = min(waits) if waits else None
        is_more = decided.is_void or (may_be_more and bool(decided.admitted or decided.parked))
        if not is_more:
            break
    is_full = is_more or len(jobs) >= request.room
    return Admitted(jobs=tuple(jobs), is_contended=is_contended, is_full=is_full, next_in=next_in)


def _claimed(
    db: Database, one: Candidate, row: Sequence[Any], name_of: dict[int, str], request: ClaimRequest
) -> ClaimedJob:
    """Give a claim; one that has a place of a limited queue is noted, so that its end is told."""
    job = claimed_job(row, name_of=name_of, worker_id=request.worker_id, at=row[BEHIND])
    if one.is_limited:
        db.limited.began([job.token.fence])
    return job._replace(has_slots=bool(one.slots), is_limited=one.is_limited)


async def _decide(
    db: Database, request: ClaimRequest, found: Sequence[Candidate], room: int, rooms: dict[str, int]
) -> tuple[Decision, list[Any]]:
    """Decide about candidates; `rooms` is what is left of each queue's afterwards.

    Jobs of limited queues are left out when somebody keeps the lock of one.
    """
    if all(not one.keys and not one.is_limited and rooms[one.queue] >= room for one in found):
        return await decide_free(db, request, found, room, rooms)
    try:
        decision, taken = await _decide_with(db, request, found, room, rooms)
    except DriverUnavailable as error:
        if error.details.get("sqlstate") != LOCK_NOT_HAD:
            raise
        others = [one for one in found if not one.is_limited]
        decision, taken = await _decide_with(db, request, others, room, rooms)
        decision.is_contended = True
    for row in taken:
        rooms[row["queue"]] -= 1
    return decision, taken


async def _decide_with(
    db: Database, request: ClaimRequest, found: Sequence[Candidate], room: int, rooms: dict[str, int]
) -> tuple[Decision, list[Any]]:
    """Decide about candidates in one transaction; keys that are used for the first time are made before it.

    Of those that this process has met before one may have been forgotten since: the transaction tells.
    """
    limits = {hash_: (one.name, limit) for one in found for hash_, limit in one.keys.items()}
    limited = _limited(found)
    wanted = sorted(limits)

    async def once(conn: Raw) -> _Turn:
        decision = Decision(room, rooms)
        try:
            async with looking(conn):
                if limited:
                    await _lock(db, conn, limited)
                rows = await conn.fetch(db.in_schema(LOCK_KEYS), wanted) if wanted else []
                locked = [row["hash"] for row in rows]
                if len(locked) < len(wanted):
                    known = await conn.fetch(db.in_schema(_KNOWN_KEYS), wanted)
                    if missing := set(wanted) - {row["hash"] for row in known}:
                        return _Turn(decision, [], missing)
                await _decide_about(db, conn, decision, found, locked)
                taken = await _take(db, conn, request, decision, limited) if decision.has_come_to_any else []
        except _NotTrueError:
            decision.is_void = True
            taken = []
        return _Turn(decision, taken, set())

    await _make_keys(db, limits, db.limited.unmet(wanted))
    turn = await db.run(once)
    if turn.missing:
        await _make_keys(db, limits, turn.missing)
        turn = await db.run(once)
    db.limited.meet(wanted)
    if turn.taken:
        await move(db, turn.decision.moves)
    return turn.decision, turn.taken


def _limited(found: Sequence[Candidate]) -> list[str]:
    return sorted({one.queue for one in found if one.is_limited})


async def _make_keys(db: Database, limits: Mapping[UUID, tuple[str, LimitKey]], hashes: Collection[UUID]) -> None:
    """Let keys be there, so that they can be locked; repeating it is harmless."""
    new = [(hash_, name, *limit) for hash_, (name, limit) in limits.items() if hash_ in hashes]
    if new:
        columns = [list(column) for column in zip(*new, strict=True)]
        await db.run(lambda conn: conn.execute(db.in_schema(NEW_KEYS), *columns))


async def _decide_about(
    db: Database, conn: Raw, decision: Decision, found: Sequence[Candidate], locked: Sequence[UUID]
) -> None:
    """Count what is held of the locked keys and queues, keep the jobs that are still there, and decide about those."""
    limits = {hash_: limit for one in found for hash_, limit in one.keys.items()}
    had = set(locked)
    asked = [one.job_id for one in found if one.keys and one.keys.keys() <= had]
    free = [one.job_id for one in found if not one.keys]
    limited = _limited(found)
    rows = await conn.fetch(db.in_schema(COUNT_KEYS), locked, asked, free, decision.room, limited)
    keys = {row["hash"]: Key(row, limits[row["hash"]]) for row in rows if row["hash"] is not None}
    here = {row["job_id"]: row["queue"] for row in rows if row["job_id"] is not None}
    if limited:
        decision.places({row["queue"]: row["n"] for row in rows if row["hash"] is None and row["job_id"] is None})
    for candidate in found:
        decision.about(candidate, keys, is_here=here.get(candidate.job_id) == candidate.queue)


async def _take(
    db: Database, conn: Raw, request: ClaimRequest, decision: Decision, limited: Sequence[str]
) -> list[Any]:
    """Store what is decided.

    Raises:
        _NotTrueError: not all that were admitted could be taken; what is left of the keys was reckoned with them.
    """
    taken = await conn.fetch(db.in_schema(ADMIT), request.worker_id, *decision.binds(), limited)
    if len(taken) < len(decision.admitted):
        raise _NotTrueError
    place = {candidate.job_id: number for number, candidate in enumerate(decision.admitted)}
    taken.sort(key=lambda row: place[row["job_id"]])
    return taken


async def _lock(db: Database, conn: Raw, queues: list[str]) -> None:
    """Wait for the locks under which claims of these queues are counted too."""
    keys = lock_keys(db.schema, Guarded.RUNNING, queues)
    await conn.execute(db.in_schema(LOCK), keys, str(int(PATIENCE.total_seconds() * 1000)))
