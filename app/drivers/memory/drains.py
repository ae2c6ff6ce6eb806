"""Reports of drained workers, and how long their jobs waited for the next claim."""

from __future__ import annotations

from datetime import datetime

from ...domain.drain import CUT, MOST_REPORTS, DrainedRun, DrainReport, DrainView, RunAgain
from ...domain.job import WorkerId
from ...domain.ledger import CAUSE_DRAIN
from ...domain.step import StepKind
from .rows import Dormant, Drained, Finished, Running
from .store import Store


def report_drain(store: Store, report: DrainReport) -> None:
    """Keep a report, and the newest of all; see `HeartbeatStore.report_drain`."""
    with store.statement() as now:
        if report.worker_id in store.workers:
            store.drains[report.worker_id] = Drained(report=report, at=now)
        for worker_id in sorted(store.drains, reverse=True)[MOST_REPORTS:]:
            del store.drains[worker_id]


def drains(store: Store, *, limit: int, before: WorkerId | None) -> tuple[DrainView, ...]:
    """Give the newest reports; see `FleetStore.drains`."""
    with store.statement():
        ids = sorted((one for one in store.drains if before is None or one < before), reverse=True)
        return tuple(_view(store, store.drains[worker_id]) for worker_id in ids[:limit])


def _view(store: Store, drained: Drained) -> DrainView:
    report, about = drained.report, store.workers[drained.report.worker_id].about
    return DrainView(
        worker_id=report.worker_id,
        host=about.host,
        code_version=about.code_version,
        reason=report.reason,
        started_at=drained.at - report.lasted,
        ended_at=drained.at,
        runs=tuple(_again(store, run, drained.at) for run in report.runs),
    )


def _again(store: Store, run: DrainedRun, ended_at: datetime) -> RunAgain:
    again = _claimed_again(store, run) if run.fate in CUT else None
    envelope = store.envelopes.get(run.job_id)
    tenant = None if envelope is None else envelope.job.tenant
    if again is None:
        return RunAgain(run=run, claimed_after=None, tenant=tenant)
    rows = store.ledger.get(run.job_id, ())
    own = (row.ended_at for row in rows if row.number == run.claim_no and row.cause == CAUSE_DRAIN)
    return RunAgain(run=run, claimed_after=again - next(own, ended_at), tenant=tenant)


def _claimed_again(store: Store, run: DrainedRun) -> datetime | None:
    """Give when the next claim was there; one that suspended left no row, but its first step or when it suspended."""
    known = [row.started_at for row in store.ledger.get(run.job_id, ()) if row.number > run.claim_no][:1]
    token = store.tokens.get(run.job_id)
    if token is not None and token.counters.claim_no > run.claim_no:
        match token:
            case Finished(started_at=at) | Running(claimed_at=at) | Dormant(since=at):
                known.append(at)
            case _:
                pass
    if (envelope := store.envelopes.get(run.job_id)) is not None:
        known += [
            step.view.started_at
            for step in store.runs.steps_of(envelope.run_id)
            if step.view.claim_no > run.claim_no and step.view.kind in {StepKind.RUN, StepKind.TRANSACTION}
        ]
    return min((at for at in known if at is not None), default=None)
