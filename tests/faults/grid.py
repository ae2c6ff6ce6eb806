"""K13, the grid of schedules: what was decided, held against an enumerator that shares nothing with the product.

Every move of a schedule's watermark is a promise: all instants of its rule up to there are decided, each once. Moves
that decide nothing (a declaration with another rule, the end of a pause) are told apart by what else they change.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from app.domain.schedule import MOST_DECIDED
from tests.support.cron_read import expression_of
from tests.support.cron_walk import Run, enumerated, walk

if TYPE_CHECKING:
    from tests.faults.written import Write

# Around a change of the clock enough is walked for every expression to have both sides of it.
_EDGE = timedelta(days=2)
_DAY = timedelta(days=1)
_SHOWN = 5
_MOST = {"all": None, "latest": 1, "none": 1}  # how many of the due ones fire; None: as many as declared


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """All of a rule's instants behind `after` and up to `until` were decided, by a rule of this catch-up policy."""

    schedule: str
    cron: str
    tz: str
    after: datetime
    until: datetime
    most: int
    is_paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An occurrence that the rule brought about."""

    schedule: str
    at: datetime
    is_fired: bool


def check(history: Iterable[Write]) -> None:
    """Hold every schedule of a store to its rule."""
    history = list(history)
    on_the_grid(list(_advances(history)), list(_rows(history)))


def on_the_grid(advances: Sequence[Advance], rows: Sequence[Row]) -> None:
    """None is missing, none is extra, none is there twice; those that fired are the newest that were due."""
    twice = [key for key, times in Counter((row.schedule, row.at) for row in rows).items() if times > 1]
    assert not twice, f"decided twice: {twice[:_SHOWN]}"
    decided: dict[str, dict[datetime, Row]] = defaultdict(dict)
    for row in rows:
        decided[row.schedule][row.at] = row
    wanted: dict[str, set[datetime]] = defaultdict(set)
    for advance in advances:
        due = due_in(advance)
        wanted[advance.schedule].update(due)
        missing = [at for at in due if at not in decided[advance.schedule]]
        assert not missing, f"{advance.schedule}, {advance.cron!r} in {advance.tz}: missing {_said(missing)}"
        _by_policy(advance, due, decided[advance.schedule])
    for name, by_time in decided.items():
        extra = sorted(by_time.keys() - wanted[name])
        assert not extra, f"{name}: extra {_said(extra)}"


def due_in(advance: Advance) -> list[datetime]:
    """Give the instants of a rule in an advance, the newest of very many."""
    runs = _walked(advance.tz, _midnight(advance.after - _EDGE), _midnight(advance.until + _EDGE + _DAY))
    due = [at for at in enumerated(expression_of(advance.cron), runs) if advance.after < at <= advance.until]
    return due[-MOST_DECIDED:]


def _by_policy(advance: Advance, due: Sequence[datetime], rows: Mapping[datetime, Row]) -> None:
    """Of what was due at once none but the newest fired, and of a paused schedule nothing did."""
    fired = [at for at in due if rows[at].is_fired]
    if advance.is_paused:
        assert not fired, f"{advance.schedule} is paused, and fired {_said(fired)}"
        return
    early = [at for at in fired if at not in due[-advance.most :]]
    assert not early, f"{advance.schedule} fired {_said(early)}, and may fire {advance.most} of {len(due)}"


def _advances(history: Iterable[Write]) -> Iterable[Advance]:
    for write in history:
        if write.place != "schedule" or write.op != "UPDATE":
            continue
        row, was = write.row, write.row["was"]
        is_resumed = was["paused_at"] is not None and row["paused_at"] is None
        is_other_rule = (was["cron"], was["tz"]) != (row["cron"], row["tz"])
        after, until = datetime.fromisoformat(was["watermark"]), datetime.fromisoformat(row["watermark"])
        if until > after and not is_resumed and not is_other_rule:
            yield Advance(
                schedule=row["name"],
                cron=row["cron"],
                tz=row["tz"],
                after=after,
                until=until,
                most=_most(row["document"]),
                is_paused=row["paused_at"] is not None,
            )


def _most(document: str) -> int:
    policy: dict[str, Any] = json.loads(document)
    return _MOST[policy.get("catch_up", "all")] or policy.get("max_catch_up", MOST_DECIDED)


def _rows(history: Iterable[Write]) -> Iterable[Row]:
    for write in history:
        if write.place == "occurrence" and write.op == "INSERT" and write.row["fired_by"] is None:
            row = write.row
            at = datetime.fromisoformat(row["at"])
            yield Row(schedule=row["schedule"], at=at, is_fired=row["outcome"] == 0)


@cache
def _walked(tz: str, start: datetime, end: datetime) -> list[Run]:
    return walk(tz, start, end)


def _midnight(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)


def _said(instants: Sequence[datetime]) -> str:
    some = ", ".join(at.isoformat() for at in instants[:_SHOWN])
    return some if len(instants) <= _SHOWN else f"{some} and {len(instants) - _SHOWN} more"
