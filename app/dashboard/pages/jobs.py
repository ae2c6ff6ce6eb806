"""The list of jobs: by state, searched by qualifiers, in pages that neither jump nor slow down; rows can be selected.

Counts are of the whole store or of one queue, as they were counted a moment ago; where another filter narrows the list
its number is not known, and none is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from http import HTTPStatus
from uuid import UUID

from starlette.responses import RedirectResponse, Response

from ...control.jobs import ListQuery
from ...control.overview import COUNTED_ENDED
from ...domain.bulk import ACTS_ON, BulkAction
from ...domain.edit import version_of
from ...domain.errors import CursorInvalid, RequestInvalid
from ...domain.job import JobId
from ...domain.snapshot import JobPage, JobView, Stats
from ...domain.state import State
from ...domain.text import read_uuid
from ..activity import Activity, activity_of, range_of
from ..export import as_csv, as_ndjson, csv_head
from ..panels import panel_of, unless_slow
from ..query import Asked, read_query
from ..streamed import Streamed
from ..visit import OPERATE, Visit
from .entry import nowhere_else

SIZES = (25, 50, 100, 200)
OFFERED = (BulkAction.RETRY, BulkAction.RUN_NOW, BulkAction.RELEASE, BulkAction.CANCEL, BulkAction.DELETE)
_VIEWS = {
    "Live": "state:live",
    "Failing": "state:dead created:24h",
    "Stuck": "state:held",
    "Slow": "state:running before:1h",
    "Today": "created:24h",
}
# Columns that can be left out; what names a job and says how it is stays.
HIDEABLE = {name: name.capitalize() for name in ("tags", "queue", "attempt", "wait", "duration", "age")}
COLUMNS_COOKIE = "outlast-columns"
_A_YEAR_SECONDS = 365 * 24 * 3600
MOST_EXPORTED = 10_000
_A_PAGE = 200
# By how much the clocks of those who enqueue may be ahead of the store's.
_AHEAD = timedelta(minutes=5)
_ID_BITS_BELOW_TIME = 80
_FORMATS = {"csv": ("text/csv", as_csv), "ndjson": ("application/x-ndjson", as_ndjson)}


async def page(visit: Visit) -> Response:
    """Give one page of the list."""
    asked = read_query(visit.request.query_params.getlist("q"), visit.now)
    if asked.job_id is not None:
        return visit.go(f"/jobs/{asked.job_id}")
    limit = next((size for size in SIZES if str(size) == visit.asked("size")), SIZES[1])
    query = _query(visit, asked)
    read = visit.services.jobs.list(replace(query, before=_cursor(visit.asked("cursor")) or query.before, limit=limit))
    found, slow = await unless_slow(read)
    stats, _ = (None, None) if visit.tenant is not None else await unless_slow(visit.services.overview.stats())
    jobs = () if found is None else found.items
    response = visit.page(
        "jobs.html",
        title="Jobs",
        at="jobs",
        asked=asked,
        tabs=_tabs(asked, stats),
        slow=slow,
        jobs=jobs,
        versions={view.id: version_of(view) for view in jobs},
        next_cursor=None if found is None else found.next_after,
        is_first=not visit.asked("cursor"),
        size=limit,
        sizes=SIZES,
        saved=_VIEWS,
        may_act=visit.may(OPERATE),
        applies=_applies(jobs),
        acts_on={action.value: " ".join(sorted(ACTS_ON[action])) for action in OFFERED},
        hidden=_hidden(visit),
        hideable=HIDEABLE,
        most_exported=MOST_EXPORTED,
        narrowest=_narrowest(asked),
        activity=await _activity(visit, asked),
        names=sorted({each.name for each in await visit.services.catalogue.all()}),
        queues=sorted({queue.name for queue in stats.queues}) if stats is not None else [],
        status=HTTPStatus.OK if slow is None else visit.services.status_of(slow),
    )
    response.headers.update({} if slow is None else visit.services.headers_of(slow))
    return response


async def _activity(visit: Visit, asked: Asked) -> Activity | None:
    """Draw what ended lately of the type and queue that are searched; counts are of all tenants, so not for one."""
    if visit.tenant is not None:
        return None
    shown = range_of(asked, visit.now)
    reading = visit.services.flow.chart(
        shown.window, shown.bucket, name=asked.name, queue=asked.queue, with_kinds=False
    )
    chart = (await panel_of(reading)).value
    return None if chart is None else activity_of(chart, shown, asked)


async def export(visit: Visit) -> Response:
    """Give what a search finds as a file, the newest so many of it; without payloads, whoever asks.

    It is read as it is sent. A store that goes away meanwhile cuts the file short, and the download fails.
    """
    asked = read_query(visit.request.query_params.getlist("q"), visit.now)
    media_type, write = _FORMATS.get(visit.asked("as"), _FORMATS["csv"])
    if asked.wrong or asked.job_id is not None:
        raise RequestInvalid(
            f"the search is not understood: {(asked.wrong or ('an id is no search',))[0]}", fix="correct it on its page"
        )
    query = replace(_query(visit, asked), limit=_A_PAGE)
    pages = _pages(visit, query, await visit.services.jobs.list(query), write)
    name = f"outlast-jobs-{visit.now:%Y%m%d-%H%M%S}.{'csv' if write is as_csv else 'ndjson'}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Streamed(pages, media_type=media_type, headers=headers)


async def _pages(
    visit: Visit, query: ListQuery, found: JobPage, write: Callable[[Iterable[JobView]], bytes]
) -> AsyncGenerator[bytes, None]:
    if write is as_csv:
        yield csv_head()
    left = MOST_EXPORTED
    while True:
        yield write(found.items[:left])
        left -= len(found.items)
        if left <= 0 or found.next_after is None:
            return
        found = await visit.services.jobs.list(replace(query, before=found.next_after))


async def columns(visit: Visit) -> Response:
    """Keep for this browser which columns are shown."""
    form = await visit.form()
    shown = form.get("show", [])
    response = RedirectResponse(nowhere_else(visit, form.one("next")), HTTPStatus.SEE_OTHER)
    response.set_cookie(
        COLUMNS_COOKIE,
        ".".join(name for name in HIDEABLE if name not in shown),
        max_age=_A_YEAR_SECONDS,
        path=visit.base or "/",
        httponly=True,
        samesite="strict",
    )
    return response


def _hidden(visit: Visit) -> frozenset[str]:
    return frozenset(visit.request.cookies.get(COLUMNS_COOKIE, "").split(".")) & HIDEABLE.keys()


def _query(visit: Visit, asked: Asked) -> ListQuery:
    return ListQuery(
        states=asked.states,
        name=asked.name,
        queue=asked.queue,
        tags_any=() if asked.tag is None else (asked.tag,),
        error_code=asked.error,
        key=asked.key,
        worker_id=asked.worker,
        tenant=visit.tenant,
        created_after=asked.created_after,
        created_before=asked.created_before,
        finished_after=asked.finished_after,
        finished_before=asked.finished_before,
        before=_first(asked, visit.now),
    )


def _first(asked: Asked, now: datetime) -> JobId | None:
    """Give the id that a search for an older stretch of time begins below, None for the newest.

    Ids begin with the time of their making. What was made well after a stretch was not enqueued or ended in it, and
    beside many such jobs a page would be empty: it reads so many and no more.
    """
    ends = [at for at in (asked.created_before, asked.finished_before) if at is not None]
    if not ends or min(ends) >= now - _AHEAD:
        return None
    ms = max(round((min(ends) + _AHEAD).timestamp() * 1_000), 0)
    return JobId(UUID(int=ms << _ID_BITS_BELOW_TIME))


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
        shown = count if count is None or count < COUNTED_ENDED else COUNTED_ENDED
        tabs.append((name, asked.with_state(name), shown, shown == COUNTED_ENDED))
    return tabs


def _counts(asked: Asked, stats: Stats) -> Counter[State] | None:
    if any(name not in {"state", "queue"} for name, _ in asked.terms):
        return None
    if asked.queue is None:
        return Counter(stats.by_state)
    return Counter(next((queue.depth for queue in stats.queues if queue.name == asked.queue), {}))


def _applies(jobs: Sequence[JobView]) -> dict[str, int]:
    """Give to how many of the rows each action applies."""
    return {action.value: sum(job.state in ACTS_ON[action] for job in jobs) for action in OFFERED}


def _narrowest(asked: Asked) -> tuple[str, str] | None:
    """Give the qualifier to drop when nothing is found, with the search without it."""
    for name in ("key", "tag", "error", "worker", "finished", "until", "created", "before", "name", "state", "queue"):
        value = next((value for term, value in asked.terms if term == name), None)
        if value is not None:
            return f"{name}:{value}", asked.without(name)
    return None
