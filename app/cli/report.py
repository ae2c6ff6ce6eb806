"""How commands fail: two lines on stderr and an exit code people can script against."""

from __future__ import annotations

import sys
from contextlib import suppress

from ..domain.errors import (
    CountChanged,
    DriverUnavailable,
    IdempotencyMismatch,
    JobDuplicate,
    JobNameTaken,
    JobNotFound,
    JobStateConflict,
    JobUnknown,
    LeaseLost,
    NotFound,
    NotImplementedYet,
    OutlastError,
    PreconditionFailed,
    RequestInvalid,
    ScheduleInvalid,
    SchemaOutdated,
    SettingsInvalid,
)

FAILURE = 1
USAGE = 2
TIMED_OUT = 3
NOT_FOUND = 4
CONFLICT = 5
SETTINGS = 64
UNAVAILABLE = 69
SCHEMA_TOO_OLD = 78

_CODES: tuple[tuple[type[OutlastError], int], ...] = (
    (RequestInvalid, USAGE),
    (SettingsInvalid, SETTINGS),
    (ScheduleInvalid, SETTINGS),  # same: it is declared in one of them
    (JobNameTaken, SETTINGS),  # found while the modules of OUTLAST_JOBS are read
    (NotImplementedYet, SETTINGS),  # a store or a policy of a later release
    (DriverUnavailable, UNAVAILABLE),
    (SchemaOutdated, SCHEMA_TOO_OLD),
    (JobNotFound, NOT_FOUND),
    (NotFound, NOT_FOUND),
    (JobUnknown, NOT_FOUND),
    (JobDuplicate, CONFLICT),
    (IdempotencyMismatch, CONFLICT),
    (JobStateConflict, CONFLICT),
    (PreconditionFailed, CONFLICT),
    (CountChanged, CONFLICT),
    (LeaseLost, CONFLICT),  # a worker that has left
)


def exit_code_of(error: OutlastError) -> int:
    """Give the exit code of a failure; 1 for everything without one of its own."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILURE)


def fail(cause: str, *, fix: str) -> None:
    """Say what went wrong and what to do, one line each."""
    say(f"error: {' '.join(cause.split())}\n  fix: {' '.join(fix.split())}")


def say(line: str) -> None:
    """Talk to the person at the terminal; a terminal that is gone or full does not end the process."""
    with suppress(OSError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
