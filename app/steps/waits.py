"""What a step that waits may say, and what is made of a wait that is known: the checks of sleeps, events and calls.

Values only. Called by `ctx.step`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from ..domain.errors import ChildFailed
from ..domain.job import LONGEST_DURATION, NAME_PATTERN, ClaimedJob, NewJob
from ..domain.state import State
from ..domain.step import NewWait, WaitView
from ..domain.step_errors import StepInvalid, called_in_circle
from ..domain.text import printable_key
from .history import Record

_MOMENT = timedelta(milliseconds=100)


def known(wait: Record) -> NewWait:
    """Name a wait that the store has; the end of its time is for whoever looks when it is due."""
    due_at = wait.due_at if isinstance(wait, WaitView) else None
    return NewWait(name=wait.name, kind=wait.kind, place=wait.place, is_known=True, until=due_at)


def lasted(wait: NewWait, since: timedelta) -> NewWait:
    """Take off a wait's time what is over; a moment is not worth a time that differs from the one asked for."""
    if wait.delay is None or since < _MOMENT:
        return wait
    return replace(wait, delay=max(wait.delay - since, timedelta()))


def time_of(
    name: str, delay: timedelta | datetime | None, until: datetime | None, *, now: Callable[[], datetime]
) -> tuple[timedelta | None, datetime | None]:
    """Give how long a sleep lasts, or when it ends.

    Raises:
        StepInvalid: it says neither or both, or what cannot be.
    """
    ends = delay if isinstance(delay, datetime) else until
    lasts = delay if isinstance(delay, timedelta) else None
    if (lasts is None) == (ends is None) or (isinstance(delay, datetime) and until is not None):
        raise StepInvalid(f"the sleep {name!r} names no time, or two", fix="pass a timedelta, or until=")
    if ends is not None and ends.tzinfo is None:
        raise StepInvalid(f"the sleep {name!r} names no time zone", fix="pass an aware datetime, or a timedelta")
    if (lasts is not None and lasts > LONGEST_DURATION) or (ends is not None and ends - now() > LONGEST_DURATION):
        raise StepInvalid(f"the sleep {name!r} is longer than five years", fix="sleep for less")
    return lasts, ends


def refuse_event(event: object, key: object, timeout: timedelta | None, since: str) -> None:
    """Refuse a wait for an event that cannot be.

    Raises:
        StepInvalid: the name, the key, the timeout or `since`.
    """
    if not isinstance(event, str) or re.fullmatch(NAME_PATTERN, event) is None:
        raise StepInvalid(f"{event!r} is not the name of an event", fix=f"use a name that matches {NAME_PATTERN}")
    wrong = printable_key(key) if isinstance(key, str) else "it is no text"
    if wrong is not None:
        raise StepInvalid(
            f"the key of the event {event!r} cannot be used: {wrong}",
            fix="pass key= as 1 to 255 printable characters",
        )
    if timeout is not None and not timedelta() < timeout <= LONGEST_DURATION:
        raise StepInvalid(
            f"timeout={timeout} is no time to wait for the event {event!r}",
            fix="pass more than zero and at most five years, or leave it out to wait for as long as it takes",
        )
    if since not in ("enqueue", "wait"):
        raise StepInvalid(f"since={since!r} is not known", fix="use 'enqueue' or 'wait'")


def refuse_itself(name: str, child: NewJob, caller: ClaimedJob) -> None:
    """Refuse a call that the calling job itself would answer: it would wait for its own end.

    Raises:
        CallCycle: the child has the job type, tenant and idempotency key of the caller.
    """
    if child.key is not None and (child.name, child.tenant, child.key) == (caller.name, caller.tenant, caller.key):
        raise called_in_circle(name, child, (caller.token.job_id,))


def child_failed(wait: WaitView, name: str) -> ChildFailed:
    """Give the error of a call whose child, a job of type `name`, will never give a result."""
    # A child without a state was given another life after this run had gone on from its end.
    state = "deleted" if wait.is_child_gone else (wait.child_state or State.DEAD).value
    error = "" if wait.child_error_type is None else f": {wait.child_error_type}: {wait.child_error_message}"
    return ChildFailed(
        f"the job {name} {wait.child_id}, which step {wait.name!r} called, is {state}{error}",
        fix="look at the child's attempts; a retry of this job calls it anew",
        step=wait.name,
        child_id=str(wait.child_id),
        child_state=state,
        child_error_code=wait.child_error_code,
    )
