"""Puts together what a process shows of its drain from what its roles say; see `status` for the words.

Called by `shutdown`, in whichever thread asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from signal import SIGINT, SIGTERM

from .drain import DrainNotice
from .role import Role
from .status import DrainPhase, DrainState, DrainStatus, Tally

_SIGNALS = frozenset({SIGTERM.name, SIGINT.name})


def wall_clock() -> datetime:
    """Give this machine's idea of the time, for people to read; nothing is decided by it."""
    return datetime.now(UTC)  # noqa: TID251 - the default of an injected clock


def status_of(
    roles: Sequence[Role],
    *,
    notice: DrainNotice | None,
    since: datetime | None,
    phase: DrainPhase | None,
    has_left: bool,
    now: float,
) -> DrainStatus:
    """Show a drain in the instant `now` (monotonic). `since` is the wall time of `notice`, both None before one."""
    state = DrainState.RUNNING if notice is None else DrainState.DRAINING
    cause = None if notice is None else notice.cause
    return DrainStatus(
        state=DrainState.STOPPED if has_left else state,
        phase=None if notice is None else phase or DrainPhase.ACCEPT,
        reason=cause,
        signal=cause if cause in _SIGNALS else None,
        started_at=since,
        deadline_at=None if notice is None or since is None else since + timedelta(seconds=notice.seconds),
        remaining=None if notice is None else max(notice.deadline - now, 0.0),
        now=now,
        roles={role.name: role.phase.value for role in roles if role.is_shown},
        held=tuple(run for role in roles for run in role.held()),
        tally=reduce(Tally.plus, (role.tally() for role in roles), Tally()),
    )
