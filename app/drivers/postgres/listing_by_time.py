"""`list_by_time`: a page of jobs in the order in which they are due, or ended, along an index of that time.

As in `listing`, at most `SCANNED` candidates are looked at, and a short page says where to go on. A place is a time and
an id: jobs that are due at one instant may be any number.
"""

from __future__ import annotations

from typing import NamedTuple

from ...domain.job import JobId
from ...domain.snapshot import Place, PlacedPage
from ..reading import SORTABLE, ListQuery, TimeOrder, TimeSort, beside
from .buckets import DONE, TOKEN
from .database import Row
from .describe import AROUND, VIEW, job_view
from .list_sources import SCANNED
from .listing import ENVELOPE, STANDS, binds_of
from .reader import Reader
from .rows import plain
from .tenant_wall import behind


class _Index(NamedTuple):
    """Where the jobs of an order are: their table, its column, what the index is over, and the bounds of the filter."""

    table: str
    column: str
    condition: str
    after: str
    before: str


_INDEXES = {
    TimeSort.RUN_AT: _Index("waiting", "due_at", "true", "$18", "$19"),
    TimeSort.FINISHED_AT: _Index("finished", "finished_at", f"state <> {DONE}", "$14", "$15"),
}

# `$2` candidates, of which `$7` are shown; the last of them is where to go on when the page was not filled by then.
_PAGE = f"""
with page as materialized (
  select {VIEW}, s.at as place_at
  from (<candidates>) s{ENVELOPE}
  cross join lateral ({TOKEN}) t {AROUND}{STANDS}
  order by s.at <way>, s.id <way> limit $7)
select f.at as floor_at, f.id as floor_id, p.* from (select) one
left join lateral (
  select s.at, s.id from (<candidates>) s where (select count(*) from page) < $7
  order by s.at <way>, s.id <way> offset $2 - 1 limit 1) f on true
left join page p on true
order by p.place_at <way>, p.id <way>"""  # noqa: S608  our own


async def list_by_time(db: Reader, query: ListQuery, order: TimeOrder) -> PlacedPage:
    """Give one page; it may be short, and only one without a next place is the last."""
    if not query.states or not query.states <= SORTABLE[order.sort]:
        raise ValueError(f"no index has jobs in {sorted(query.states)} by {order.sort}")
    place, shown = order.place, query.limit + 1
    binds = binds_of(query, None if place is None else place.id, SCANNED, shown)
    sql = db.in_schema(page_sql(query, order))
    rows = await behind(db, query.tenant, lambda conn: conn.fetch(sql, *binds, None if place is None else place.at))
    found = [row for row in rows if row["id"] is not None]
    places = [Place(row["place_at"], JobId(plain(row["id"]))) for row in found[: query.limit]]
    items = tuple(job_view(row) for row in found[: query.limit])
    goes_on = places[-1] if len(found) == shown else _floor(rows[0])
    back_to = None if place is None else places[0] if places else beside(place, order)
    if order.is_back:
        return PlacedPage(items=items[::-1], next_place=back_to, prev_place=goes_on)
    return PlacedPage(items=items, next_place=goes_on, prev_place=back_to)


def page_sql(query: ListQuery, order: TimeOrder) -> str:
    """Give the statement; what the filter and the place leave open is no condition of its index."""
    index = _INDEXES[order.sort]
    is_ascending = order.is_ascending is not order.is_back
    fits = [index.condition]
    if order.place is not None:
        fits.append(f"({index.column}, job_id) {'>' if is_ascending else '<'} ($20::timestamptz, $1::uuid)")
    bounds = (query.run_at_after, query.run_at_before)
    if order.sort is TimeSort.FINISHED_AT:
        bounds = (query.finished_after, query.finished_before)
    for value, bind, sign in zip(bounds, (index.after, index.before), (">=", "<"), strict=True):
        if value is not None:
            fits.append(f"{index.column} {sign} {bind}::timestamptz")
    way = "asc" if is_ascending else "desc"
    candidates = (
        f"select job_id as id, {index.column} as at from outlast.{index.table} where {' and '.join(fits)}"  # noqa: S608  our own
        f" order by {index.column} {way}, job_id {way} limit $2"
    )
    typed = "" if order.place is not None else " where ($1::uuid, $20::timestamptz) is null"
    envelope = "outlast.job e where e.id = s.id"
    sql = _PAGE.replace("(select) one", f"(select{typed}) one")
    return (
        sql.replace("<candidates>", candidates)
        .replace("<way>", way)
        .replace("<envelope>", envelope)
        .replace("<once>", "true")
    )


def _floor(row: Row) -> Place | None:
    return None if row["floor_id"] is None else Place(row["floor_at"], JobId(plain(row["floor_id"])))
