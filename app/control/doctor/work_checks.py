"""Checks of the work that lies in the store: is there somebody for it?"""

from __future__ import annotations

import shlex
from collections import defaultdict
from datetime import timedelta

from ...domain.audit import Action
from ...domain.explain_fleet import knows, stays
from ...domain.vitals import OnTheWay, ReadyGroup
from .finding import Check, Examined, Finding, Level, ok, quoted, skip
from .moved import again

_SHOWN = 5
_NO_STORE = "the store did not answer, or its schema is older"


def _queues(examined: Examined) -> Finding:
    if examined.vitals is None or examined.vitals.work is None:
        return skip(_NO_STORE)
    served = {queue for worker in examined.workers if stays(worker) for queue in worker.queues}
    waiting: defaultdict[str, int] = defaultdict(int)
    for group in examined.vitals.work.ready:
        waiting[group.queue] += group.count
    left = {queue: count for queue, count in waiting.items() if queue not in served}
    paused = [queue for queue in examined.queues if queue.paused_at is not None and waiting.get(queue.name)]
    if left:
        return Finding(
            level=Level.FAIL,
            text="ready jobs of queues that no worker serves: " + _counted(left),
            facts={"queues": left, "served": sorted(served)},
            fix="start a worker for them, or name them in OUTLAST_QUEUES of one that runs",
            commands=(f"outlast worker --queues {','.join(sorted(left))}",),
        )
    if paused:
        return Finding(
            level=Level.WARN,
            text="jobs wait in queues that are paused: " + ", ".join(queue.name for queue in paused[:_SHOWN]),
            facts={"paused": [queue.name for queue in paused]},
            fix="let claims begin again when the reason is gone",
            commands=tuple(f"POST /v1/queues/{queue.name}/resume" for queue in paused),
        )
    named = (
        f"served: {', '.join(sorted(served))}; no other queue has ready jobs" if served else "no queue has ready jobs"
    )
    return ok(named, served=sorted(served))


def _job_types(examined: Examined) -> Finding:
    if examined.vitals is None or examined.vitals.work is None:
        return skip(_NO_STORE)
    staying = [worker for worker in examined.workers if stays(worker)]
    served = {queue for worker in staying for queue in worker.queues}

    def is_known(group: ReadyGroup) -> bool:
        return any(
            group.queue in worker.queues
            and knows(worker, group.name)
            and (group.version is None or group.version == worker.code_version)
            for worker in staying
        )

    stuck: defaultdict[str, int] = defaultdict(int)
    for group in examined.vitals.work.ready:
        if group.queue in served and not is_known(group):
            stuck[group.name if group.version is None else f"{group.name} (code {group.version})"] += group.count
    if stuck:
        return Finding(
            level=Level.FAIL,
            text="ready jobs of types that no worker of their queue knows: " + _counted(stuck),
            facts={"job_types": dict(stuck)},
            fix="start a worker whose OUTLAST_JOBS names the modules that declare them (`outlast jobs explain` says"
            " more)",
        )
    idle = [doc.name for doc in examined.job_types if not any(knows(worker, doc.name) for worker in staying)]
    if idle:
        listed = ", ".join(f"'{name}'" for name in idle)
        schema = "outlast" if examined.server is None else examined.server.schema
        return Finding(
            level=Level.WARN,
            text=f"published, and known to no live worker: {', '.join(idle[:_SHOWN])}"
            + (f" and {len(idle) - _SHOWN} more" if len(idle) > _SHOWN else ""),
            facts={"job_types": idle},
            fix="start a worker that declares them; of types that are gone for good, take back the publication",
            commands=(f'delete from "{schema}".job_type where name in ({listed})',),  # noqa: S608  shown, not run
        )
    return ok(
        f"every one of {len(examined.job_types)} published job types has a worker", published=len(examined.job_types)
    )


def _leases(examined: Examined) -> Finding:
    work = None if examined.vitals is None else examined.vitals.work
    if work is None or examined.store_now is None:
        return skip(_NO_STORE)
    before = examined.store_now - examined.limits.lost_lease
    stuck = [lease for lease in work.lost if lease.lease_until <= before]
    facts = {"workers": [str(lease.worker_id) for lease in stuck], "stranded": work.stranded}
    if not stuck:
        return ok("no worker is lost that nobody has taken over", stranded=work.stranded)
    return Finding(
        level=Level.FAIL,
        text=f"{len(stuck)} workers are lost and {work.stranded} jobs still theirs: no live worker takes them over",
        facts=facts,
        fix="start a worker: any one takes them over, one lease after the server's start at the earliest",
        commands=("outlast worker",),
    )


def _outbox(examined: Examined) -> Finding:
    view, error = examined.outbox, examined.outbox_error
    if error is not None:
        return Finding(level=Level.FAIL, text=error.cause, facts={"code": error.code}, fix=error.fix)
    if view is None:
        return skip(_NO_STORE)
    lag = view.lag // timedelta(milliseconds=1)
    facts = {"staged": view.staged, "claimed": view.claimed, "quarantined": view.quarantined, "lag_ms": lag}
    if view.lag >= examined.limits.outbox_lag:
        return Finding(
            level=Level.FAIL,
            text=f"{view.staged + view.claimed:,} staged jobs are not published, the oldest for"
            f" {view.lag.total_seconds():,.0f} s: no relay runs, or it cannot",
            facts=facts,
            fix="start a relay beside the database they are staged in (OUTLAST_OUTBOX_URL)",
            commands=("outlast relay",),
        )
    if view.quarantined:
        return Finding(
            level=Level.WARN,
            text=f"{view.quarantined:,} staged jobs were refused and wait for you, the newest of type"
            f" {', '.join(item.name for item in view.items[:1])}",
            facts=facts,
            fix="mend what refused them (`outlast outbox status` lists them), then stage them again",
            commands=("outlast outbox replay --all",),
        )
    return ok(f"{view.staged + view.claimed:,} staged, none waits long", **facts)


def _moves(examined: Examined) -> Finding:
    work = None if examined.vitals is None else examined.vitals.work
    if work is None or examined.store_now is None:
        return skip(_NO_STORE)
    before = examined.store_now - examined.limits.on_the_way
    broken = [move for move in work.moves if move.since <= before]
    if not broken:
        return ok("no job is left on its way to another database", on_the_way=sum(move.count for move in work.moves))
    facts = {"moves": [{"target": move.target, "jobs": move.count, "since": move.since} for move in broken]}
    text = "jobs were taken out for another database and have not arrived: " + ", ".join(
        f"{move.count:,} for {move.database} since {move.since:%Y-%m-%d %H:%M}" for move in broken[:_SHOWN]
    )
    late = [move for move in broken if move.late]
    if late:
        schema = "outlast" if examined.server is None else examined.server.schema
        return Finding(
            level=Level.FAIL,
            text=f"{text}; whether {late[0].database} has had {late[0].late:,} of them cannot be known any more",
            facts=facts,
            fix=f'look for each there: if it was there, delete its row from "{schema}".moving, else set that row\'s'
            " taken_at to now(); then move again",
            commands=tuple(
                f'select id, job_id, name, taken_at from "{schema}".moving where target = {quoted(move.target)}'  # noqa: S608  shown, not run
                for move in late
            ),
        )
    commands = [again(move, examined.moved) for move in broken]
    return Finding(
        level=Level.FAIL,
        text=text,
        facts=facts,
        fix="move again, to the same address, with its user and password, which are kept nowhere: what was"
        " left on the way goes first"
        + ("" if None not in commands else f" (`{_where(broken[commands.index(None)])}` says which address it was)"),
        commands=tuple(command for command in commands if command is not None),
    )


def _where(move: OnTheWay) -> str:
    return shlex.join(["outlast", "audit", "list", "--action", Action.JOBS_MOVE, "--target", move.target])


def _counted(groups: dict[str, int]) -> str:
    first = sorted(groups.items(), key=lambda each: (-each[1], each[0]))
    shown = ", ".join(f"{count:,} of {name}" for name, count in first[:_SHOWN])
    return shown if len(first) <= _SHOWN else f"{shown}, and {len(first) - _SHOWN} more"


WORK_CHECKS = (
    Check(
        code="queues",
        title="Queues are served",
        when="ready jobs wait in a queue that no worker serves, or (a warning) that is paused",
        judge=_queues,
    ),
    Check(
        code="job_types",
        title="Job types are known",
        when="ready jobs wait whose type no worker of their queue knows; a published type has no worker (a warning)",
        judge=_job_types,
    ),
    Check(
        code="leases",
        title="Lost workers are taken over",
        when="a lease has passed 30 s ago and nobody has taken over",
        judge=_leases,
    ),
    Check(
        code="outbox",
        title="Staged jobs are published",
        when="one waits for a minute; some were refused (a warning)",
        judge=_outbox,
    ),
    Check(
        code="moves",
        title="Moves have come to their end",
        when="jobs that `outlast jobs move` took out have not arrived a minute later",
        judge=_moves,
    ),
)
