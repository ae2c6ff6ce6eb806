"""Schedules: read, pause, resume, fire by hand, preview an expression."""

from __future__ import annotations

from datetime import datetime

from ..answers.operations import Decided, Schedule, SchedulePreview
from ..call import Call, get, get_items, path, post
from ..wire import instant


def list_schedules() -> Call[tuple[Schedule, ...]]:
    """Give every schedule by name, each with its next time and its last occurrence."""
    return get_items("/v1/schedules", Schedule)


def get_schedule(name: str) -> Call[Schedule]:
    """Give one schedule with its next times and last occurrences."""
    return get(path("v1", "schedules", name), Schedule)


def pause_schedule(name: str, *, reason: str | None = None) -> Call[Schedule]:
    """Let a schedule fire no more until it is resumed."""
    return post(path("v1", "schedules", name, "pause"), Schedule, reason=reason)


def resume_schedule(name: str, *, reason: str | None = None) -> Call[Schedule]:
    """End a pause; what was missed is not caught up."""
    return post(path("v1", "schedules", name, "resume"), Schedule, reason=reason)


def trigger_schedule(name: str, *, reason: str | None = None) -> Call[Decided]:
    """Fire a schedule now, besides its own times."""
    return post(path("v1", "schedules", name, "trigger"), Decided, reason=reason)


def preview_schedule(
    cron: str, tz: str, *, n: int | None = None, after: datetime | None = None
) -> Call[SchedulePreview]:
    """Say what an expression means in a zone: its next `n` times, with what the clock's changes do to them."""
    return get("/v1/schedules/preview", SchedulePreview, cron=cron, tz=tz, n=n, after=instant(after))
