"""`count_jobs`: how many jobs fit a filter, up to a number beyond which nobody reads the difference.

Counted is over the same source as a page is looked for in, and as far. Of where a job stands only what the filter asks
about is looked at: a candidate of a bucket is in its state already.
"""

from __future__ import annotations

from ...domain.ledger import CODES_OF_ENDS
from ...domain.snapshot import JobCount
from ...domain.state import TERMINAL, State
from ..reading import MOST_COUNTED, ListQuery
from .buckets import CODE_OF, FIRST_RANK
from .list_sources import BIND_TYPES, END_OF_CODE, SCANNED, Source, choose
from .listing import ENVELOPE, binds_of, floor_of, over
from .reader import Reader
from .tenant_wall import behind

# A row says that the job is there.
_IN = {
    State.DELAYED: "select from outlast.waiting t where t.job_id = e.id",
    State.READY: f"""select from outlast.ready t
      where t.queue = e.queue and t.rank = {FIRST_RANK} and t.seq = e.seq and t.job_id = e.id
      union all select from outlast.ready t where t.job_id = e.id and t.moved
      union all select from outlast.gate t where t.job_id = e.id""",  # noqa: S608  our own
    State.RUNNING: "select from outlast.running t where t.job_id = e.id",
    State.SUSPENDED: "select from outlast.suspended t where t.job_id = e.id",
    State.HELD: "select from outlast.held t where t.job_id = e.id",
}
_RUNS = "select from outlast.running t where t.job_id = e.id and t.worker = $16"
_ENDED = """select from outlast.finished t where t.job_id = e.id
      and ($14::timestamptz is null or t.finished_at >= $14) and ($15::timestamptz is null or t.finished_at < $15)"""
_RUN_AT = "coalesce((select t.due_at from outlast.waiting t where t.job_id = e.id), e.run_at)"
_DONE = f"select from outlast.finished t where t.job_id = e.id and t.state = {CODE_OF[State.DONE]}"
_ENDED_SO = f"""select from outlast.finished t where t.job_id = e.id and t.state = {CODE_OF[State.DEAD]}
      and t.reason = {END_OF_CODE}"""

_KNOWN = "s.word = any($6)"

# `$20` is the last candidate that may be looked at, if it was found beforehand: then there are more.
_COUNT = f"""
select (select count(*) from (select from (<candidates>) s{ENVELOPE}<standing> limit $7) h) as n,
  b.floor is not null or (select count(*) from (<candidates>) s) = $2 as is_cut
from (select {BIND_TYPES}, $20::uuid as floor) b"""  # noqa: S608  our own
_LAST_ATTEMPT = """
  left join lateral (
    select a.error_type, a.error_code, a.number from outlast.attempt a where a.job_id = e.id
    order by a.number desc limit 1) a on true"""


async def count_jobs(db: Reader, query: ListQuery) -> JobCount:
    """Count the jobs that fit, among as many candidates as a page looks at."""
    scanned = SCANNED if query.is_filtered else MOST_COUNTED + 1
    binds = binds_of(query, None, scanned, MOST_COUNTED + 1)
    source = await choose(db, query, binds)
    floor = await floor_of(db, query, source, str, binds)
    sql = db.in_schema(over(count_sql(query, source), source, floor))
    row = await behind(db, query.tenant, lambda conn: conn.fetchrow(sql, *binds, floor))
    if row is None:
        raise AssertionError("a count is one row")
    return JobCount(value=min(row["n"], MOST_COUNTED), is_capped=row["is_cut"] or row["n"] > MOST_COUNTED)


def count_sql(query: ListQuery, source: Source) -> str:
    """Give the statement that looks at what this filter asks about, and at nothing else of where a job stands."""
    fits = ["<once>"]
    if query.states and source.states == query.states:
        fits.append(_KNOWN)
    elif query.states:
        fits.append(f"({_is_there(_in_any(query.states))})")
    if query.finished_after is not None or query.finished_before is not None:
        fits.append(_is_there(_ENDED))
    if query.run_at_after is not None or query.run_at_before is not None:
        fits += [f"($18::timestamptz is null or {_RUN_AT} >= $18)", f"($19::timestamptz is null or {_RUN_AT} < $19)"]
    if query.worker_id is not None:
        fits.append(_is_there(_RUNS))
    if query.error_code is not None:
        fits.append(_failed_so(query.error_code))
    elif fits[1:] == [_KNOWN] and not query.needs_envelope:
        return _COUNT.replace(ENVELOPE, "").replace("<standing>", f" where {_KNOWN}")
    attempt = "" if query.error_code is None else _LAST_ATTEMPT
    return _COUNT.replace("<standing>", f"{attempt}\n  where {' and '.join(fits)}")


def _failed_so(code: str) -> str:
    of_attempt = f"(a.error_code = $17 and {_is_there(_DONE)} is not true)"
    if code not in CODES_OF_ENDS:
        return of_attempt
    return f"({of_attempt} or (a.error_type is null and {_is_there(_ENDED_SO)}))"


def _in_any(states: frozenset[State]) -> str:
    codes = ", ".join(str(CODE_OF[state]) for state in sorted(states & TERMINAL))
    parts = [_IN[state] for state in sorted(states - TERMINAL)]
    if codes:
        parts.append(f"select from outlast.finished t where t.job_id = e.id and t.state in ({codes})")
    return " union all ".join(parts)


def _is_there(rows: str) -> str:
    """Give a scalar: `exists` may be planned as a hash of all rows."""
    return f"(select true from ({rows}) x limit 1)"  # noqa: S608  our own
