"""What the memory driver keeps of deliveries, and how the end of a job becomes one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from ...domain.job import JobId
from ...domain.webhook import Callback, Delivery, DeliveryId, DeliveryState, Ended, Try, WebhookId
from .rows import Envelope, Finished


@dataclass(slots=True, kw_only=True)
class Telling:
    """A delivery on its way."""

    id: DeliveryId
    webhook: WebhookId
    url: str | None
    ended: Ended
    state: DeliveryState = DeliveryState.PENDING
    carrier: JobId | None = None
    tried: int = 0
    tries: tuple[Try, ...] = ()

    def shown(self, state: DeliveryState) -> Delivery:
        """Give it as people see it, in a state."""
        return Delivery(
            id=self.id,
            webhook=self.webhook,
            url=self.url,
            ended=self.ended,
            state=state,
            carrier=self.carrier,
            tried=self.tried,
            tries=self.tries,
        )


def is_pending(telling: Telling) -> bool:
    """Say whether it is on its way, as far as its own row says."""
    return telling.state is DeliveryState.PENDING


def telling_of(job_id: JobId, envelope: Envelope, end: Finished, now: datetime) -> Telling | None:
    """Give the delivery that a job's end asks for, None unless somebody asked to be told of such an end."""
    job = envelope.job
    callback = None if job.callback is None else Callback.of(job.callback)
    if callback is None or end.state not in callback.ends:
        return None
    ended = Ended(
        job_id=job_id,
        run_id=envelope.run_id,
        name=job.name,
        queue=job.queue,
        tenant=job.tenant,
        state=end.state,
        reason=end.reason,
        attempt=end.counters.attempt,
        ended_at=now,
        traceparent=job.traceparent,
    )
    return Telling(id=DeliveryId(uuid4()), webhook=callback.webhook, url=callback.url, ended=ended)
