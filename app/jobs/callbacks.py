"""Callbacks as jobs know them: the check that one may be asked for, and the job that carries what it asks for.

Called by clients and controls at an enqueue, by workers that hand deliveries on, and by the carrier.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta

from uuid_utils.compat import uuid7

from ..domain.errors import CallbackRefused, NotImplementedYet, OutlastError
from ..domain.job import JobId, NewJob
from ..domain.retry import RetryPolicy
from ..domain.webhook import CARRIER, Callback, Delivery, Webhook
from ..drivers.webhooks import webhooks_of

# About a day and a half: seconds at first, hours at last.
CARRIED = RetryPolicy(max_attempts=12, backoff=timedelta(seconds=5), factor=4.0, max_backoff=timedelta(hours=6))


async def check_callbacks(driver: object, jobs: Sequence[NewJob]) -> None:
    """Refuse jobs whose callback names a webhook that is not their tenant's, or an address of another origin.

    A webhook that is disabled is no hindrance: it may be enabled by the time the job ends.

    Raises:
        CallbackRefused: with the `index` of the job where there are several.
        NotImplementedYet: the store has no webhooks.
    """
    seen: dict[tuple[str, str], Webhook | None] = {}
    for index, job in enumerate(jobs):
        if job.callback is None:
            continue
        try:
            await _check(driver, job.tenant, Callback.of(job.callback), seen)
        except OutlastError as error:
            if len(jobs) > 1:
                error.details["index"] = index
            raise


async def _check(driver: object, tenant: str, callback: Callback, seen: dict[tuple[str, str], Webhook | None]) -> None:
    store = webhooks_of(driver)
    if store is None:
        raise NotImplementedYet("this store has no webhooks", fix="leave `callback` out and wait for the result")
    place = (tenant, callback.webhook)
    if place not in seen:
        seen[place] = await store.webhook(callback.webhook, tenant=tenant)
    webhook = seen[place]
    if webhook is None:
        raise CallbackRefused(
            f"the tenant {tenant!r} has no webhook {callback.webhook[:64]!r}",
            fix="name one that `outlast webhooks list` shows for it, or make one with `outlast webhooks create`",
            pointer="/callback/secret_id",
        )
    webhook.target(callback.url)


def carrying(queue: str) -> Callable[[Delivery], NewJob]:
    """Give what makes the job that carries a delivery, from a queue."""

    def make(delivery: Delivery) -> NewJob:
        about = {"webhook": delivery.webhook, "job_id": str(delivery.ended.job_id)}
        return NewJob(
            id=JobId(uuid7()),
            name=CARRIER,
            payload=json.dumps({"delivery": str(delivery.id)}),
            queue=queue,
            tenant=delivery.ended.tenant,
            max_attempts=CARRIED.max_attempts,
            max_crashes=CARRIED.max_crashes,
            enqueued_by="outlast",
            traceparent=delivery.ended.traceparent,
            meta=json.dumps(about),
        )

    return make
