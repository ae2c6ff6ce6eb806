"""Dead letters in groups of one job type and one error: what died, why, and how the group is retried as one."""

from __future__ import annotations

from datetime import timedelta

from starlette.responses import Response

from ...control.jobs import ListQuery
from ...domain.bulk import ErrorKind
from ...domain.errors import OutlastError, RequestInvalid
from ...domain.job import JobId
from ...domain.snapshot import AttemptView, DeadGroup, JobView
from ...domain.state import State
from ...domain.text import read_uuid
from ..visit import OPERATE, Visit

_SORTS = {"last": "Latest", "count": "Most", "first": "Newest kind"}
_LATEST = 5
_LOOKED_AT = 200
_MOST_DAYS = 3_650
_PARTS = 4


async def page(visit: Visit) -> Response:
    """Give the groups, one of them open if asked for."""
    groups = await visit.services.overview.dead_letters(tenant=visit.tenant)
    sort = visit.asked("sort") if visit.asked("sort") in _SORTS else "last"
    wanted = visit.asked("q").removeprefix("name:")
    shown = [group for group in groups if wanted in group.name]
    shown.sort(key=lambda group: _rank(group, sort), reverse=True)
    opened = next((group for group in shown if key_of(group) == visit.asked("group")), None)
    latest = await _latest(visit, opened) if opened is not None else []
    return visit.page(
        "dead.html",
        title="Dead letters",
        at="dead",
        groups=shown,
        keys={id(group): key_of(group) for group in shown},
        whole=sum(group.count for group in groups),
        sort=sort,
        sorts=_SORTS,
        q=wanted,
        opened=opened,
        latest=latest,
        trace=await _trace(visit, latest[0]) if latest else None,
        may_act=visit.may(OPERATE),
    )


async def purge(visit: Visit) -> Response:
    """Delete dead letters older than some days, for a few seconds; sent again it goes on with what is left."""
    form = await visit.form()
    days = form.number("days")
    if days is None or not 0 < days <= _MOST_DAYS:
        raise RequestInvalid("days is out of range", fix=f"write a number from 1 to {_MOST_DAYS}", pointer="/days")
    found = read_uuid(form.one("after"))
    done = await visit.services.purge.dead(
        timedelta(days=days),
        name=form.one("name") or None,
        tenant=visit.tenant,
        after=None if found is None else JobId(found),
        by=visit.acting(form),
    )
    visit.services.overview.forget_dead_letters()
    more = "" if done.next_after is None else "; there are more, send it again"
    return visit.go("/dead", said=f"Deleted {done.purged:,} dead letters{more}")


def key_of(group: DeadGroup) -> str:
    """Give the word that names a group in an address."""
    return "~".join((group.name, group.reason, group.error_type or "", group.error_code or ""))


def group_of(key: str) -> tuple[str, ErrorKind]:
    """Give the job type and the kind that a group's word names. Raises `REQUEST_INVALID`."""
    parts = key.split("~")
    if len(parts) < _PARTS or not all(parts[:2]):
        raise RequestInvalid("there is no such group of dead letters", fix="choose one of the page of dead letters")
    # The name and the reason have no such mark; what is between them and the code is the type of the error.
    name, reason, *middle, code = parts
    return name, ErrorKind(reason=reason, type="~".join(middle) or None, code=code or None)


def _rank(group: DeadGroup, sort: str) -> float:
    if sort == "count":
        return group.count
    return (group.last_at if sort == "last" else group.first_at).timestamp()


async def _latest(visit: Visit, group: DeadGroup) -> list[JobView]:
    """Give the newest jobs of a group, as far as they are among the newest of their type."""
    found = await visit.services.jobs.list(
        ListQuery(states=frozenset({State.DEAD}), name=group.name, tenant=visit.tenant, limit=_LOOKED_AT)
    )
    return [job for job in found.items if _is_of(job, group)][:_LATEST]


def _is_of(job: JobView, group: DeadGroup) -> bool:
    error = job.error
    kind = (None, None) if error is None else (error.type, error.code)
    return job.state_reason == group.reason and kind == (group.error_type, group.error_code)


async def _trace(visit: Visit, job: JobView) -> AttemptView | None:
    try:
        attempts = await visit.services.jobs.attempts(job.id, tenant=visit.tenant)
    except OutlastError:
        return None  # purged meanwhile
    return next((attempt for attempt in reversed(attempts) if attempt.error is not None), None)
