"""Reports of drained workers: `report_drain` on the heartbeat's connection, `drains` for readers.

One row a worker, its runs in parallel arrays: written once or twice at a drain's end, by the worker itself. How long
a job waited for its next claim is looked up by key in its ledger and its token, for the reports asked for alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ...domain.drain import MOST_REPORTS, DrainedRun, DrainReport, DrainView, RunAgain
from ...domain.job import JobId, WorkerId
from ...domain.ledger import CAUSE_DRAIN
from ...domain.step import StepKind
from .database import Row
from .reader import Reader
from .resolve import KIND_CODES

REPORT = """
insert into outlast.drain(worker, host, code_version, reason, started_at, job_ids, claim_nos, names, fates, ignored)
select w.id, w.host, w.code_version, $2, outlast.clock() - $3::interval,
  $4::uuid[], $5::int[], $6::text[], $7::text[], $8::boolean[]
from outlast.worker w where w.id = $1
on conflict (worker) do update set ended_at = outlast.clock(), job_ids = excluded.job_ids,
  claim_nos = excluded.claim_nos, names = excluded.names, fates = excluded.fates, ignored = excluded.ignored
"""
TRIM = f"""
delete from outlast.drain
where worker < (select worker from outlast.drain order by worker desc offset {MOST_REPORTS - 1} limit 1)
"""  # noqa: S608  a number of our own

# The next claim is the first ledger row after this one, or what holds or ended the job, if that is a later claim. One
# that suspended leaves no row: it was there when its first step began, or at the latest when it suspended.
_DRAINS = f"""
with recent as materialized (
  select * from outlast.drain where $2::int is null or worker < $2 order by worker desc limit $1)
select d.worker, d.host, d.code_version, d.reason, d.started_at, d.ended_at,
  r.job_id, r.claim_no, r.name, r.fate, r.ignored,
  (select j.tenant from outlast.job j where j.id = r.job_id) as tenant,
  case when r.fate in ('interrupted', 'abandoned') then
    least(
      (select a.started_at from outlast.attempt a
       where a.job_id = r.job_id and a.number > r.claim_no order by a.number limit 1),
      (select f.started_at from outlast.finished f where f.job_id = r.job_id and f.claim_no > r.claim_no),
      (select c.claimed_at from outlast.running c where c.job_id = r.job_id and c.claim_no > r.claim_no),
      (select min(s.started_at) from outlast.step s
       where s.run_id = (select coalesce(j.run_id, j.id) from outlast.job j where j.id = r.job_id)
         and s.claim_no > r.claim_no and s.kind < {KIND_CODES[StepKind.SLEEP]}),
      (select u.since from outlast.suspended u where u.job_id = r.job_id and u.claim_no > r.claim_no))
    - coalesce(
      (select a.ended_at from outlast.attempt a
       where a.job_id = r.job_id and a.number = r.claim_no and a.cause = '{CAUSE_DRAIN}'),
      d.ended_at)
  end as claimed_after
from recent d
left join lateral unnest(d.job_ids, d.claim_nos, d.names, d.fates, d.ignored)
  with ordinality r(job_id, claim_no, name, fate, ignored, place) on true
order by d.worker desc, r.place
"""  # noqa: S608  words of our own


def report_binds(report: DrainReport) -> tuple[object, ...]:
    """Give the binds of `REPORT`."""
    runs = report.runs
    return (
        report.worker_id,
        report.reason,
        report.lasted,
        [run.job_id for run in runs],
        [run.claim_no for run in runs],
        [run.name for run in runs],
        [run.fate for run in runs],
        [run.has_ignored for run in runs],
    )


async def drains(db: Reader, *, limit: int, before: WorkerId | None) -> tuple[DrainView, ...]:
    """Give the newest reports, of ids below `before`."""
    rows = await db.run(lambda conn: conn.fetch(db.in_schema(_DRAINS), limit, before))
    return tuple(_view(list(group)) for _, group in groupby(rows, key=lambda row: row["worker"]))


def _view(rows: Sequence[Row]) -> DrainView:
    first = rows[0]
    return DrainView(
        worker_id=WorkerId(first["worker"]),
        host=first["host"],
        code_version=first["code_version"],
        reason=first["reason"],
        started_at=first["started_at"],
        ended_at=first["ended_at"],
        runs=tuple(_again(row) for row in rows if row["job_id"] is not None),
    )


def _again(row: Row) -> RunAgain:
    run = DrainedRun(
        job_id=JobId(row["job_id"]),
        claim_no=row["claim_no"],
        name=row["name"],
        fate=row["fate"],
        has_ignored=row["ignored"],
    )
    return RunAgain(run=run, claimed_after=row["claimed_after"], tenant=row["tenant"])
