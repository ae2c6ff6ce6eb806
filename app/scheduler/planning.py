"""What is due of one schedule, and what is to become of it: from the rule, the watermark and the store's time.

Pure but for the ids of the jobs. The store decides whether the plan still holds. Driven by `scheduler`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from ..domain.errors import OutlastError
from ..domain.job import NewJob
from ..domain.outbox import is_refused_for_ever
from ..domain.schedule import MOST_DECIDED, WHY_CATCH_UP, WHY_PAUSED, Plan, Planned, Standing, chosen, refused
from ..jobs.schedule import Schedule


class Due(NamedTuple):
    """What is due: the plan, the first instant nobody has decided, and whether older ones are passed over."""

    plan: Plan
    first: datetime
    is_cut: bool


def due_of(schedule: Schedule, standing: Standing, now: datetime, new_job: Callable[[], NewJob]) -> Due | None:
    """Give what is due of a schedule, None while nothing is."""
    first = next(schedule.cron.after(standing.watermark), None)
    if first is None or first > now:
        return None
    due = schedule.cron.newest(standing.watermark, now, MOST_DECIDED + 1)
    is_cut = len(due) > MOST_DECIDED
    due = due[-MOST_DECIDED:]
    if standing.is_paused:
        planned = tuple(Planned(at=at, why=WHY_PAUSED) for at in due)
    else:
        fires = chosen(due, schedule.catch_up, most=schedule.max_catch_up, now=now)
        planned = tuple(_firing(at, new_job) if at in fires else Planned(at=at, why=WHY_CATCH_UP) for at in due)
    plan = Plan(
        name=schedule.name,
        digest=standing.digest,
        until=due[-1],
        planned=planned,
        overlap=schedule.overlap,
        is_paused=standing.is_paused,
    )
    return Due(plan=plan, first=first, is_cut=is_cut)


def _firing(at: datetime, new_job: Callable[[], NewJob]) -> Planned:
    try:
        return Planned(at=at, job=new_job())
    except OutlastError as error:
        # What a function of the payload made when it was declared it need not make now.
        if not is_refused_for_ever(error):
            raise
        return Planned(at=at, why=refused(at, error).why)
