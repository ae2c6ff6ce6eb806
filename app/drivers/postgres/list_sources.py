"""Where a list looks for its jobs: the index of the rarest thing that is asked for.

Each source gives ids in their order, below the cursor or above it, and reads its index no further than it is asked to:
envelopes by key, parent or tenant, tokens of a state, claims of a worker, tags, errors. Which of several is rarest is
found by counting a little of each. Owns no page: those are `listing`'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from ...domain.ledger import CODES_OF_ENDS
from ...domain.state import TERMINAL, State
from ..reading import ListQuery
from .buckets import DEAD, DONE
from .reader import Reader

SCANNED = 20_000
# So many of a source are counted to find the rarest: beyond, one is as common as the other.
WEIGHED = 5_000

_CURSOR = re.compile(r"\(\$1::uuid is null or (id|job_id) < \$1\)")
_BELOW = "($1::uuid is null or {id} < $1) order by {id} desc{then} limit $2"
_DEFAULT_TENANT = "default"


class Source(NamedTuple):
    """The SQL of candidates, of column `id`; binds are a page's.

    `has_envelope`: it gives envelopes. Those of other tenants are hidden from callers of one, row by row, so that it
    would read on behind what they may see. `states` are those that its candidates are known to be in, each with its
    `word`. `once` says of a candidate `s` with its envelope `e` and last attempt `a` that it stands for its job,
    where a source may give a job several times; its candidate that does comes first.
    """

    sql: str
    has_envelope: bool = False
    states: frozenset[State] | None = None
    once: str = "true"


def _below(name: str, then: str = "") -> str:
    return _BELOW.format(id=name, then=then)


def _envelopes(condition: str) -> Source:
    return Source(f"select * from outlast.job where {condition} and {_below('id')}", has_envelope=True)  # noqa: S608  our own


def _bucket(table: str, condition: str = "true", *, word: str = "") -> str:
    also = f", {word} as word" if word else ""
    return f"select job_id as id{also} from outlast.{table} where {condition} and {_below('job_id')}"  # noqa: S608  our own


ALL = _envelopes("true")
KEY = _envelopes("key = $12")
CHILDREN = _envelopes("parent_id = $13")
# Jobs of the usual tenant are in no index of their own: it would cost all of them.
TENANT = _envelopes(f"tenant = $5 and tenant <> '{_DEFAULT_TENANT}'")
WORKER = Source(_bucket("running", "worker = $16"))
_OF_ERROR = "select job_id as id, number from outlast.attempt where error_code = $17 and "
ERROR = Source(_OF_ERROR + _below("job_id", ", number desc"), once="a.number = s.number")
# A code that jobs show, too, that ended while they waited: no attempt has it then, and any bad end may be one of those.
_WORDS_OF_ENDS = " ".join(f"when '{code}' then '{reason}'" for code, reason in CODES_OF_ENDS.items())
END_OF_CODE = f"(case $17::text {_WORDS_OF_ENDS} end)"
_OF_END = f"select job_id as id, 0 as number from outlast.finished where state <> {DONE} and "  # noqa: S608  our own
ERROR_OR_END = Source(
    f"select id, number from (({ERROR.sql}) union all ({_OF_END + _below('job_id')})) u"  # noqa: S608  our own
    " order by id desc, number desc limit $2",
    once="""s.number = coalesce((
      select x.number from outlast.attempt x where x.error_code = $17 and x.job_id = e.id
      order by x.number desc limit 1), 0)""",
)
_END_WORD = f"case state when {DONE} then '{State.DONE}' when {DEAD} then '{State.DEAD}' else '{State.CANCELLED}' end"
ENDED = _bucket("finished", word=_END_WORD)
ENDED_BADLY = _bucket("finished", f"state <> {DONE}", word=_END_WORD)
_LIVE_TABLES = {
    State.DELAYED: ("waiting",),
    State.READY: ("ready", "gate"),
    State.RUNNING: ("running",),
    State.SUSPENDED: ("suspended",),
    State.HELD: ("held",),
}
# Of few ready tokens all are sorted; of many, the newest are among the newest jobs.
_MANY_READY = f"select count(*) > {SCANNED} from (select from outlast.ready limit {SCANNED + 1}) r"  # noqa: S608  our own


def tagged(column: str, count: int) -> Source:
    """Give the jobs with any of so many tags, the binds of a column; a job counts with the first of them it has."""
    one = f"select job_id as id, {{nth}} as nth from outlast.tag where tag = ({column}::text[])[{{nth}}] and "  # noqa: S608  our own
    parts = [one.format(nth=nth) + _below("job_id") for nth in range(1, count + 1)]
    if count == 1:
        return Source(parts[0])
    together = " union all ".join(f"({part})" for part in parts)
    return Source(
        f"select id, nth from ({together}) u order by id desc, nth limit $2",  # noqa: S608  our own
        once=f"not e.tags && ({column}::text[])[1 : s.nth - 1]",
    )


def one_tag(nth: int) -> Source:
    """Give the jobs with one of the tags that all are wanted."""
    return Source(_bucket("tag", f"tag = ($11::text[])[{nth}]"))


async def choose(db: Reader, query: ListQuery, binds: tuple[object, ...]) -> Source:
    """Give the source to look through: the rarest of those that fit, where there are several."""
    sources = [make(query) for is_asked, make in _NARROW if is_asked(query)]
    sources += [one_tag(nth) for nth in range(1, len(query.tags_all) + 1)]
    if query.states:
        is_ready_rare = State.READY not in query.states or not await _are_many_ready(db)
        sources += [of_states(query.states)] if is_ready_rare else []
    if len(sources) < 2:  # noqa: PLR2004  there is a choice
        return sources[0] if sources else ALL
    counted = ", ".join(f"(select count(*) from ({source.sql}) c)" for source in sources)  # noqa: S608  our own
    sql = f"select array[{counted}] from (select {BIND_TYPES}) b"  # noqa: S608  our own
    weighed = (None, WEIGHED, *binds[2:])
    counts: list[int] = await db.run(lambda conn: conn.fetchval(db.in_schema(sql), *weighed))
    return sources[counts.index(min(counts))]


def downwards(sql: str) -> str:
    """Let candidates begin at a cursor there is: its place in the index is found, and what is above never read."""
    return _CURSOR.sub(r"\1 < $1::uuid", sql)


def upwards(sql: str) -> str:
    """Turn candidates around: those above the cursor, the oldest first."""
    sql = _CURSOR.sub(r"\1 > $1::uuid", sql).replace("id >= $20", "id <= $20")
    return re.sub(r"id desc(|, number desc|, nth) limit \$2", r"id asc\1 limit $2", sql)


def of_states(states: frozenset[State]) -> Source:
    """Give the jobs in these states, of which there is one at least."""
    parts = [
        _bucket(table, word=f"'{state}'")
        for state, tables in _LIVE_TABLES.items()
        if state in states
        for table in tables
    ]
    if State.DONE in states:
        parts.append(ENDED)
    elif states & TERMINAL:
        parts.append(ENDED_BADLY)
    together = " union all ".join(f"({part})" for part in parts)
    return Source(f"select id, word from ({together}) u order by id desc limit $2", states=states)  # noqa: S608  our own


async def _are_many_ready(db: Reader) -> bool:
    return bool(await db.run(lambda conn: conn.fetchval(db.in_schema(_MANY_READY))))


_NARROW: tuple[tuple[Callable[[ListQuery], bool], Callable[[ListQuery], Source]], ...] = (
    (lambda query: query.key is not None, lambda _: KEY),
    (lambda query: query.worker_id is not None, lambda _: WORKER),
    (lambda query: query.parent_id is not None, lambda _: CHILDREN),
    (
        lambda query: query.error_code is not None,
        lambda query: ERROR_OR_END if query.error_code in CODES_OF_ENDS else ERROR,
    ),
    (lambda query: bool(query.tags_any), lambda query: tagged("$10", len(query.tags_any))),
    (lambda query: query.tenant not in {None, _DEFAULT_TENANT}, lambda _: TENANT),
)
# Every bind has its type, also where a source does not ask for it.
BIND_TYPES = """
$1::uuid, $2::bigint, $3::text, $4::text, $5::text, $6::text[], $7::bigint, $8::timestamptz, $9::timestamptz,
$10::text[], $11::text[], $12::text, $13::uuid, $14::timestamptz, $15::timestamptz, $16::int, $17::text,
$18::timestamptz, $19::timestamptz""".strip()
