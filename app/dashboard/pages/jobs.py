"""The list of jobs: by state, searched by qualifiers, in pages that neither jump nor slow down; rows can be selected.

Counts are of the whole store or of one queue, as they were counted a moment ago; where another filter narrows the list
its number is not known, and none is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from starlette.responses import Response

from ...control.jobs import ListQuery
from ...domain.bulk import ACTS_ON, BulkAction
from ...domain.edit import version_of
from ...domain.errors import CursorInvalid
from ...domain.job import JobId
from ...domain.snapshot import JobView, Stats
from ...domain.state import State
from ...domain.text import read_uuid
from ..query import Asked, read_query
from ..visit import OPERATE, Visit

SIZES = (25, 50, 100, 200)
# Of ended jobs the newest are counted.
_COUNTED_ENDED = 10_000
OFFERED = (BulkAction.RETRY, BulkAction.RUN_NOW, BulkAction.RELEASE, BulkAction.CANCEL, BulkAction.DELETE)
_VIEWS = {"Live": "state:live", "Failing": "state:dead created:24h", "Stuck": "state:held", "Today": "created:24h"}


async def page(visit: Visit) -> Response:
    """Give one page of the list."""
    asked = read_query(visit.request.query_params.getlist("q"), visit.now)
    if asked.job_id is not None:
        return visit.go(f"/jobs/{asked.job_id}")
    limit = next((size for size in SIZES if str(size) == visit.asked("size")), SIZES[1])
    found = await visit.services.jobs.list(
        ListQuery(
            states=asked.states,
            name=asked.name,
            queue=asked.queue,
            tenant=visit.tenant,
            created_after=asked.created_after,
            created_before=asked.created_before,
            before=_cursor(visit.asked("cursor")),
            limit=limit,
        )
    )
    stats = await visit.services.overview.stats() if visit.tenant is None else None
    return visit.page(
        "jobs.html",
        title="Jobs",
        at="jobs",
        asked=asked,
        tabs=_tabs(asked, stats),
        jobs=found.items,
        versions={view.id: version_of(view) for view in found.items},
        next_cursor=found.next_after,
        is_first=not visit.asked("cursor"),
        size=limit,
        sizes=SIZES,
        saved=_VIEWS,
        may_act=visit.may(OPERATE),
        applies=_applies(found.items),
        narrowest=_narrowest(asked),
        names=sorted({each.name for each in await visit.services.catalogue.all()}),
        queues=sorted({queue.name for queue in stats.queues}) if stats is not None else [],
    )


def _cursor(text: str) -> JobId | None:
    if not text:
        return None
    found = read_uuid(text)
    if found is None:
        raise CursorInvalid(
            "the page cannot be found: its cursor was not given out here", fix="start at the first page"
        )
    return JobId(found)


def _tabs(asked: Asked, stats: Stats | None) -> list[tuple[str, str, int | None, bool]]:
    """Give every tab with its search, its count where it is known, and whether that is capped."""
    counts = None if stats is None else _counts(asked, stats)
    tabs: list[tuple[str, str, int | None, bool]] = []
    for name in ("all", *(state.value for state in State)):
        count = None if counts is None else sum(counts.values()) if name == "all" else counts[State(name)]
        shown = count if count is None or count < _COUNTED_ENDED else _COUNTED_ENDED
        tabs.append((name, asked.with_state(name), shown, shown == _COUNTED_ENDED))
    return tabs


def _counts(asked: Asked, stats: Stats) -> Counter[State] | None:
    if asked.name is not None or asked.created_after is not None or asked.created_before is not None:
        return None
    if asked.queue is None:
        return Counter(stats.by_state)
    return Counter(next((queue.depth for queue in stats.queues if queue.name == asked.queue), {}))


def _applies(jobs: Sequence[JobView]) -> dict[str, int]:
    """Give to how many of the rows each action applies."""
    return {action.value: sum(job.state in ACTS_ON[action] for job in jobs) for action in OFFERED}


def _narrowest(asked: Asked) -> tuple[str, str] | None:
    """Give the qualifier to drop when nothing is found, with the search without it."""
    for name in ("created", "before", "name", "state", "queue"):
        value = next((value for term, value in asked.terms if term == name), None)
        if value is not None:
            return f"{name}:{value}", asked.without(name)
    return None
