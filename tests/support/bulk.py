"""Bulk operations made for a test, and worked off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import uuid_utils

from app.domain.bulk import BulkAction, BulkId, BulkStep, BulkView, JobFilter, NewBulk
from app.domain.job import JobId
from app.domain.outcome import DeadLettered
from app.domain.state import DeadReason, State
from app.drivers.bulk import BulkStore, bulk_of
from tests.support.drivers import ERROR, DriverEnv


def store_of(env: DriverEnv) -> BulkStore:
    """Give the bulk operations beside an environment's jobs."""
    store = bulk_of(env.driver)
    assert store is not None
    return store


def a_bulk(
    action: BulkAction, *states: State, ids: Sequence[JobId] | None = None, name: str | None = None, **fields: Any
) -> NewBulk:
    """Give an operation over jobs in some states, or of some ids; any field of `NewBulk` can be named."""
    defaults: dict[str, Any] = {"id": BulkId(UUID(bytes=uuid_utils.uuid7().bytes)), "by": "ada"}
    if ids is not None:
        return NewBulk(action=action, ids=tuple(ids), **{**defaults, **fields})
    jobs = fields.pop("jobs", None) or JobFilter()
    return NewBulk(action=action, jobs=replace(jobs, states=frozenset(states), name=name), **{**defaults, **fields})


async def worked_off(store: BulkStore, made: BulkView, *, batch: int = 500) -> list[BulkStep]:
    """Step an operation until none is left to do; each step decides something."""
    steps: list[BulkStep] = []
    while (step := await store.step(only=made.id, batch=batch)) is not None:
        assert step.has_decided
        steps.append(step)
    return steps


async def done(store: BulkStore, bulk: NewBulk) -> BulkView:
    """Make an operation, work it off and give it."""
    await worked_off(store, await store.make(bulk))
    view = await store.find(bulk.id)
    assert view is not None
    return view


async def dead(env: DriverEnv, **fields: Any) -> JobId:
    """Give a job that has died; the queue must be empty otherwise."""
    held = await env.running(**fields)
    await env.close_attempt(held.token, DeadLettered(error=ERROR, reason=DeadReason.TERMINAL))
    return held.token.job_id
