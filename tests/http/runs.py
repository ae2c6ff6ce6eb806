"""Runs for the HTTP tests: a worker that records steps, suspends and says what a test tells it to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from app.domain.job import ClaimedJob
from app.domain.outcome import Suspended
from app.domain.step import MAIN_BRANCH, NewNotes, NewStep, NewWait, Place, StepKind
from tests.http.api import Api


def step(name: str, number: int = 0, **fields: Any) -> NewStep:
    """Give a step whose body ran for a quarter of a second."""
    return NewStep(**{
        "name": name,
        "kind": StepKind.RUN,
        "place": Place(MAIN_BRANCH, number),
        "value": f'"{name}"',
        "lasted": timedelta(milliseconds=250),
        **fields,
    })  # fmt: skip


def sleep(name: str, number: int, delay: timedelta) -> NewWait:
    """Give a sleep that begins now."""
    return NewWait(name=name, kind=StepKind.SLEEP, place=Place(MAIN_BRANCH, number), delay=delay)


def approval(number: int, *, key: str = "7", timeout: timedelta | None = timedelta(days=3)) -> NewWait:
    """Give a wait for the event `order.approved`."""
    place = Place(MAIN_BRANCH, number)
    return NewWait(name="approval", kind=StepKind.EVENT, place=place, delay=timeout, event="order.approved", key=key)


async def record(api: Api, claimed: ClaimedJob, *steps: NewStep) -> None:
    """Record steps under a claim."""
    for each in steps:
        assert await api.env.driver.record_step(claimed.token, each)


async def suspend(api: Api, claimed: ClaimedJob, *waits: NewWait) -> None:
    """Let a run wait."""
    await api.env.close_attempt(claimed.token, Suspended(waits=waits))


async def say(api: Api, claimed: ClaimedJob, *lines: str, progress: tuple[float, str | None] | None = None) -> None:
    """Let a run say something of itself."""
    assert await api.env.driver.note([NewNotes(claimed.token, lines, progress)]) == 1
