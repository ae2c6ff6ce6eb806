"""Pages of jobs in the order that is asked for: which verb of the store gives them, and what their cursors say.

By the enqueue a page is a stretch of ids, which the store gives newest first; the oldest first are the same stretches,
turned. By another time it is a stretch of an index, and the cursor has that time beside the id. Called by the router of
`GET /v1/jobs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from ..control.jobs import SORTABLE, JobControl, ListQuery, TimeOrder, TimeSort
from ..domain.errors import RequestInvalid
from ..domain.job import JobId
from ..domain.snapshot import JobView
from .cursor import read_place_cursor, read_two_way_cursor, write_back_cursor, write_cursor, write_place_cursor
from .requests_list import UNSORTED

_FIRST = JobId(UUID(int=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One page as it is answered."""

    items: tuple[JobView, ...]
    next_cursor: str | None
    prev_cursor: str | None


async def page_of(
    jobs: JobControl, query: ListQuery, *, sort: str, cursor: str | None, filters: Sequence[str | None]
) -> Listed:
    """Give the page that a cursor leads to under these filters, or the first.

    Raises:
        CursorInvalid: the cursor was given out for something else.
        RequestInvalid: there is no index of this order for what the filters let through.
    """
    by = sort.removeprefix("-")
    if by == "created_at":
        return await _by_enqueue(jobs, query, is_ascending=sort == by, cursor=cursor, filters=filters)
    check_sort(query, sort)
    order = TimeOrder(sort=TimeSort(by), is_ascending=sort == by)
    if cursor is not None:
        place, is_back = read_place_cursor(cursor, filters)
        order = replace(order, place=place, is_back=is_back)
    page = await jobs.list_by_time(query, order)
    before, behind = page.prev_place, page.next_place
    return Listed(
        items=page.items,
        next_cursor=None if behind is None else write_place_cursor(behind, filters, is_back=False),
        prev_cursor=None if before is None else write_place_cursor(before, filters, is_back=True),
    )


async def _by_enqueue(
    jobs: JobControl, query: ListQuery, *, is_ascending: bool, cursor: str | None, filters: Sequence[str | None]
) -> Listed:
    if cursor is not None:
        job_id, is_newer = read_two_way_cursor(cursor, filters)
        query = replace(query, after=job_id) if is_newer else replace(query, before=job_id)
    elif is_ascending:
        query = replace(query, after=_FIRST)
    page = await jobs.list(query)
    older = None if page.next_after is None else write_cursor(page.next_after, filters)
    newer = None if page.newer_than is None else write_back_cursor(page.newer_than, filters)
    if is_ascending:
        return Listed(items=page.items[::-1], next_cursor=newer, prev_cursor=None if cursor is None else older)
    return Listed(items=page.items, next_cursor=older, prev_cursor=newer)


def check_sort(query: ListQuery, sort: str) -> None:
    """Refuse an order that no index has.

    Raises:
        RequestInvalid: durations have none, other times have one for some states.
    """
    by = sort.removeprefix("-")
    if by == UNSORTED:
        raise _refusal(
            "no index has jobs in the order of how long they ran: every job would pay for it",
            fix="sort by -created_at and look at `duration_ms`, or see GET /v1/stats for the slowest job types",
        )
    states = SORTABLE[TimeSort(by)]
    if not query.states or not query.states <= states:
        words = " or ".join(f"state={state}" for state in sorted(states))
        raise _refusal(
            f"by {by} only jobs with {words} are in an index",
            fix=f"add {words} and no other state, or sort by -created_at",
        )


def _refusal(why: str, *, fix: str) -> RequestInvalid:
    return RequestInvalid(why, fix=fix, errors=[{"in": "query", "pointer": "/sort", "detail": why}])
