"""The statements of enqueue: one for every batch, and its short form for batches that ask for nothing special.

Both are made of the same parts: what a batch brings, the order of transaction id and number, envelope and token.
Columns and rows are `enqueue_columns`' and `enqueue_batch`'s to make and to read. Sent by `enqueue` alone.
"""

from __future__ import annotations

from .tables_limits import LIMITED

# What every job has, $1 to $14. A column whose values are all one comes as that one value and a column of nulls as
# nothing: `unnest` fills up with nulls. The sub-selects keep the lengths of the arrays from the planner, which would
# plan anew for every short batch.
_NAMES = """
    id, payload, name_id, queue, priority, tenant, max_attempts, max_crashes, timeout_ms, parent_id, enqueued_by,
    traceparent, tags, meta""".strip()
_ARRAYS = """
    (select $1::uuid[]), (select $2::text[]), (select $3::int[]), (select $4::text[]), (select $5::smallint[]),
    (select $6::text[]), (select $7::smallint[]), (select $8::smallint[]), (select $9::bigint[]), (select $10::uuid[]),
    (select $11::text[]), (select $12::text[]), (select $13::text[]), (select $14::text[])""".strip()
_VALUES = """
    u.id, u.payload, coalesce(u.name_id, ($3::int[])[1]) as name_id, coalesce(u.queue, ($4::text[])[1]) as queue,
    coalesce(u.priority, ($5::smallint[])[1]) as priority, coalesce(u.tenant, ($6::text[])[1]) as tenant,
    coalesce(u.max_attempts, ($7::smallint[])[1]) as max_attempts,
    coalesce(u.max_crashes, ($8::smallint[])[1]) as max_crashes,
    u.timeout_ms, u.parent_id, u.enqueued_by, u.traceparent, u.tags::text[] as tags, u.meta""".strip()

# A transaction takes its id before it draws a number, so that whoever reads a number knows that every lower one
# belongs to a transaction that was in progress by then.
_ID_FIRST = "(select pg_current_xact_id()) is not null"
_NUMBER = "nextval('outlast.token_seq')"

_INTO_READY = """
  insert into outlast.ready(queue, rank, seq, job_id, name_id, moved, since)
  select queue, priority * 2 + 1, seq, id, name_id, false, null""".strip()

# Queues with a maximum depth take in nothing by a statement that has not counted, and fair ones nothing by one that
# does not know them: one that finds any of them among its jobs' does nothing but say so. Without either anywhere, this
# is a look at an empty index. A scalar, so that it is asked once and before anything else.
_ASKED = "(q.max_depth is not null or q.fair)"
_LIMITED = f"""
(select array_agg(q.name) from outlast.queue q
    where {_ASKED} and q.name = any((select $4::text[])::text[]))""".strip()  # noqa: S608  our own part

# Jobs without key, source and times have nothing to win and nothing to wait for. Gives no rows: an id that is there
# already fails it whole. What it has inserted is the number in its command tag: all or, for a limited queue, none.
ENQUEUE_PLAIN = f"""
with n as materialized (
  select {_VALUES}, {_NUMBER} as seq
  from unnest({_ARRAYS})
    u({_NAMES})
  where {_LIMITED} is null and {_ID_FIRST}),
j as (
  insert into outlast.job(seq, {_NAMES})
  select seq, {_NAMES} from n)
{_INTO_READY} from n
"""  # noqa: S608  our own parts

# `known` is answered from the snapshot and locks nothing; only what looks free goes on to the inserts, keys and
# sources in order. An ended key past its window is taken over. `is_own` is scalar: `exists` may be planned as a hash
# of all jobs.
_BROUGHT = f"""
n as materialized (
  select i.*, case when i.due is null or i.due <= outlast.clock() then {_NUMBER} end as seq
  from (
    select {_VALUES},
      u.ord, u.key, u.hash, u.fp, u.dedupe_for, u.max_queue_time, u.deadline, u.source_id, u.staged_at,
      u.callback,
      coalesce(u.run_at, outlast.clock() + u.delay) as due
    from unnest({_ARRAYS},
      (select $15::int[]), (select $16::text[]), (select $17::uuid[]), (select $18::bigint[]),
      (select $19::interval[]), (select $20::timestamptz[]), (select $21::interval[]), (select $22::interval[]),
      (select $23::interval[]), (select $24::uuid[]), (select $25::timestamptz[]), (select $26::text[]))
      u({_NAMES},
        ord, key, hash, fp, dedupe_for, run_at, delay, max_queue_time, deadline, source_id, staged_at, callback)) i
  where {{gate}}{_ID_FIRST})"""  # noqa: S608  our own parts
_KNOWN = """
known as materialized (
  select n.ord, coalesce(s.job_id, l.job_id) as job_id, s.job_id is not null as by_source, l.fp <> n.fp as mismatch,
    l.expires_at, s.job_id is null and (select true from outlast.job j where j.id = n.id) is not null as is_own
  from n
  left join lateral (select s.job_id from outlast.source s where s.source_id = n.source_id offset 0) s on true
  left join lateral (
    select l.job_id, l.fp, l.expires_at from outlast.live_key l
    where l.hash = n.hash and (not l.ended or l.expires_at > outlast.clock()) offset 0) l on true
  where s.job_id is not null or l.job_id is not null)"""
_FOUND = """
select ord, 'known' as how, job_id, by_source, is_own, mismatch, expires_at, false as half,
  (select j.run_id from outlast.job j where j.id = known.job_id) as run_id, null::text[] as limited
from known"""
_WHOLE = f"""
{_BROUGHT.strip()},
{_KNOWN.strip()},
f as not materialized (select * from n where ord not in (select ord from known)),
s as (
  insert into outlast.source(source_id, job_id, expires_at)
  select source_id, id, outlast.clock() + interval '90 days' from f where source_id is not null order by source_id
  on conflict do nothing returning job_id),
k as (
  insert into outlast.live_key as l(hash, job_id, fp, expires_at)
  select hash, id, fp, outlast.clock() + dedupe_for from f where hash is not null order by hash
  on conflict (hash) do update
    set job_id = excluded.job_id, fp = excluded.fp, expires_at = excluded.expires_at, ended = false
    where l.ended and l.expires_at <= outlast.clock()
  returning job_id),
a as not materialized (
  select * from f where (hash is null or id in (select job_id from k))
    and (source_id is null or id in (select job_id from s))),
j as (
  insert into outlast.job(seq, {_NAMES}, run_at, key, key_hash, fp, source_id, events_from, callback, deadline_at)
  select seq, {_NAMES}, due, key, hash, case when hash is not null then fp end, source_id, staged_at, callback,
    outlast.clock() + deadline
  from a),
r as (
  {_INTO_READY}
  from a where seq is not null),
w as (
  insert into outlast.waiting(due_at, job_id, queue, rank, name_id)
  select due, id, queue, priority * 2 + 1, name_id from a where seq is null),
e as (
  insert into outlast.expiry(job_id, kind, at)
  select id, 0, outlast.clock() + max_queue_time from a where max_queue_time is not null
  union all select id, 1, outlast.clock() + deadline from a where deadline is not null)
{_FOUND.strip()}
union all
select ord, 'lost', null, null, null, null, null, (id in (select job_id from k)) or (id in (select job_id from s)),
  null, null
from f where (hash is not null or source_id is not null) and ord not in (select ord from a)
union all
select ord, 'stored', null, null, null, null, outlast.clock() + dedupe_for, false, null, null
from a where dedupe_for is not null"""  # noqa: S608  our own parts

ENQUEUE = f"""
with limited as materialized (select {_LIMITED} as queues),
{_WHOLE.strip().replace("{gate}", "(select queues from limited) is null and ")}
union all
select null, 'limited', null, null, null, null, null, null, null, queues from limited where queues is not null
"""  # noqa: S608  our own parts
# For who has counted, and for jobs that no queue is too full for: the last bind names the queues it was done for.
_UNCOUNTED = "q.max_depth is not null and q.name <> all((select {bind}::text[])::text[])"
ENQUEUE_COUNTED = ENQUEUE.replace(_ASKED, f"(q.fair or {_UNCOUNTED.format(bind='$27')})")
# What of a batch is there already: the same, with nothing stored and no number drawn. What jobs are under is not asked.
FIND_KNOWN_BINDS = 26
FIND_KNOWN = f"with {_BROUGHT.strip()},\n{_KNOWN.strip()}\n{_FOUND.strip()}".replace(
    f"case when i.due is null or i.due <= outlast.clock() then {_NUMBER} end", "null::bigint"
).replace(f"\n  where {{gate}}{_ID_FIRST}", "")

# Where the statement for batches with limited jobs, or jobs of fair queues, differs: two columns more, and the mark in
# the rank of their tokens, by which `ready` knows them for the gate's. Those of fair queues go there themselves, as the
# trigger could not see yet whose they are. The last row says which queues are fair.
_IS_FAIR = "coalesce(u.queue, ($4::text[])[1]) = any((select queues from fair)::text[])"
_FAIR = """fair as materialized (
  select coalesce(array_agg(q.name), '{}') as queues from outlast.queue q
  where q.fair and q.name = any((select $4::text[])::text[])),
n as materialized (
  select i.*,"""
_INTO_GATE = """from a where seq is not null and not is_fair),
g as (
  insert into outlast.gate(job_id, queue, rank, seq, name_id, attempt, claim_no, crashes, interrupts, tenant)
  select id, queue, priority * 2 + 1 + mark, seq, name_id, 0, 0, 0, 0, tenant
  from a where seq is not null and is_fair),"""
_SAYS_FAIR = "union all\nselect null, 'fair', null, null, null, null, null, null, null, queues from fair\n"
_WITH_LIMITS = {
    "n as materialized (\n  select i.*,": _FAIR,
    "u.callback,": "u.callback, u.limit_names::text[] as limit_names,\n"
    f"      u.limit_keys::text[] as limit_keys, {_IS_FAIR} as is_fair,\n"
    f"      case when u.limit_names is not null or {_IS_FAIR} then {LIMITED} else 0 end as mark,",
    "from a where seq is not null),": _INTO_GATE,
    "(select $26::text[]))": "(select $26::text[]), (select $27::text[]), (select $28::text[]))",
    "source_id, staged_at, callback)) i": "source_id, staged_at, callback, limit_names, limit_keys)) i",
    "events_from, callback, deadline_at)": "events_from, callback, limit_names, limit_keys, deadline_at)",
    "end, source_id, staged_at, callback,": "end, source_id, staged_at, callback, limit_names, limit_keys,",
    "queue, priority * 2 + 1, seq, id": "queue, priority * 2 + 1 + mark, seq, id",
    "queue, priority * 2 + 1, name_id from a where seq is null": "queue, priority * 2 + 1 + mark, name_id from a where"
    " seq is null",
}


def _limited(asked: str) -> str:
    """Give the statement for batches with limited jobs, which asks for queues that are `asked`.

    Raises:
        ValueError: a place that it is to differ in is not there, or there twice.
    """
    sql = ENQUEUE
    for place, instead in _WITH_LIMITS.items():
        if sql.count(place) != 1:
            raise ValueError(f"{place!r} stands {sql.count(place)} times in the statement")
        sql = sql.replace(place, instead)
    sql = sql.replace(_ASKED, asked)
    return f"{sql.rstrip()}\n{_SAYS_FAIR}"


ENQUEUE_LIMITED = _limited("q.max_depth is not null")
ENQUEUE_COUNTED_LIMITED = _limited(_UNCOUNTED.format(bind="$29"))

KNOWN_IDS = """
select u.ord, j.run_id, l.expires_at from unnest($1::int[], $2::uuid[]) u(ord, id)
cross join lateral (select j.run_id, j.key_hash from outlast.job j where j.id = u.id offset 0) j
left join lateral (
  select l.expires_at from outlast.live_key l where l.hash = j.key_hash and l.job_id = u.id offset 0) l on true
"""

REMEMBER_SOURCES = """
insert into outlast.source(source_id, job_id, expires_at)
select u.source_id, u.job_id, outlast.clock() + interval '90 days'
from unnest($1::uuid[], $2::uuid[]) u(source_id, job_id)
order by u.source_id on conflict do nothing
"""
