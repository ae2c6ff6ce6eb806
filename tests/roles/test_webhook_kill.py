"""A worker that is killed between an answer and its note: a store under a clock, a real receiver, no worker at work."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.control.webhooks import WebhookControl
from app.domain.clock import ManualClock
from app.domain.webhook import CARRIER, Callback, DeliveryState
from app.drivers.webhooks import WebhookStore, webhooks_of
from app.jobs.callbacks import carrying
from app.observability.metrics import Metrics
from app.observability.telemetry import Telemetry
from app.webhooks.carrier import Carrier
from app.webhooks.sender import Sender
from tests.roles.test_webhooks import BY, HOME, MASTERS, read
from tests.support.drivers import MemoryEnv
from tests.support.receiver import receiving


async def test_a_worker_that_is_killed_before_it_noted_an_answer_tells_it_again_under_the_same_id() -> None:
    """Between the POST and its settle: the receiver has it, nobody knows, and whoever takes the job over sends it."""
    clock = ManualClock(datetime(2026, 11, 30, 12, tzinfo=UTC))
    env = MemoryEnv(clock)
    store = webhooks_of(env.driver)
    assert store is not None
    control = WebhookControl(store, masters=MASTERS, allowed=HOME)
    async with receiving() as receiver:
        issued = await control.create(label="shop", url=receiver.url, tenant=None, by=BY)
        await env.driver.cancel(await env.enqueue(callback=Callback(webhook=issued.webhook.id).text()), reason="stop")
        assert await store.carry(carrying("default")) == 1
        carrier = Carrier(
            store=store,
            masters=MASTERS,
            sender=Sender(allowed=HOME, timeout=timedelta(seconds=5)),
            telemetry=Telemetry(metrics=Metrics()),
            now=lambda: datetime.now(UTC),
        )
        for kill in (True, False):
            held = await env.claim_one(await env.register(), names=(CARRIER,), queues=("default",))
            (delivery,) = (await control.deliveries(issued.webhook.id, tenant=None)).items
            carried = carrier if not kill else replace(carrier, store=_Killed(store))
            with pytest.raises(Killed) if kill else nullcontext():
                await carried.carry(delivery.id, held.token.job_id, is_last=False)
            if kill:
                await env.vanish()
                assert len(await env.driver.reap()) == 1
        first, second = receiver.received
        (delivery,) = (await control.deliveries(issued.webhook.id, tenant=None)).items
    assert read(issued.secret, first) == read(issued.secret, second)
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert (delivery.state, delivery.tried) == (DeliveryState.DELIVERED, 1)


class Killed(BaseException):
    """The end of a process, as far as one test goes."""


class _Killed:
    """A store that a process does not live to write to."""

    def __init__(self, store: WebhookStore) -> None:
        self._store = store

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._store, verb)

    async def note(self, *_: object, **__: object) -> bool:
        raise Killed
