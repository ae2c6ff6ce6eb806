"""Four situations to look at: nothing has happened yet, much is going on, much fails, a deploy drains."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from app.domain.drain import DrainShown
from app.domain.flow import FlowPart, Tally
from app.domain.job import ClaimedJob, JobId, WorkerId
from app.domain.outcome import Cancelled, Completed, DeadLettered, ErrorInfo, Held, Interrupted, Outcome, Retried
from app.domain.state import DeadReason
from app.domain.step import NewStep, NewWait, Place, StepKind
from tests.dashboard.visitor import Visitor
from tests.http.api import job_type
from tests.http.runs import record, say, step, suspend
from tests.support.made import flow_of

TYPES = {
    "emails.campaign": "mail",
    "emails.digest": "mail",
    "receipts.send": "mail",
    "orders.capture": "billing",
    "media.transcode": "media",
    "webhooks.deliver": "webhooks",
}
PAYLOAD = json.dumps(
    {
        "order_id": 9007199254740993,
        "tenant": "shop-eu",
        "amount": {"value": "149.90", "currency": "EUR"},
        "card_token": "tok_1",
        "items": [{"sku": "LMP-2210", "qty": 2}, {"sku": "CBL-0031", "qty": 1}],
    },
    indent=2,
)
CLOSED = "Connection unexpectedly closed: smtp-2.internal, after the banner was read and EHLO shop-eu was answered"
SMTP = ErrorInfo(type="SMTPServerDisconnected", message=CLOSED, traceback="Traceback …\n  …")
DECLINED = ErrorInfo(type="CardDeclined", message="insufficient_funds", code="CARD_DECLINED", traceback="Traceback …")
AWAY = ErrorInfo(
    type="HTTPStatusError", message="410 Gone for url https://hooks.shop-eu.example/o/88214", traceback="Traceback …"
)


class Stage:
    """Puts jobs where a situation has them; `shown` are the ids of those whose page is worth a picture."""

    def __init__(self, visitor: Visitor) -> None:
        self.visitor = visitor
        self.env = visitor.env
        self.shown: JobId | None = None
        self.workers: list[WorkerId] = []

    async def open(self) -> None:
        docs = [job_type(name, queue=queue) for name, queue in TYPES.items()]
        await self.env.driver.publish_job_types(docs)

    async def worker(self, host: str, version: str = "9c1e0b7", **fields: Any) -> WorkerId:
        queues = tuple(sorted(set(TYPES.values())))
        made = await self.env.register(
            host=host, code_version=version, queues=queues, concurrency=16, lease_ms=86_400_000, **fields
        )
        self.workers.append(made)
        return made

    async def breathe(self) -> None:
        """Let every worker have renewed its lease just now."""
        for worker in self.workers:
            await self.env.renew(worker)
        await self.env.advance(timedelta(milliseconds=400))

    async def put(self, name: str, count: int = 1, **fields: Any) -> list[JobId]:
        fields = {"payload": PAYLOAD, "queue": TYPES[name], "tags": ("campaign-nov",), **fields}
        return [await self.env.enqueue(name, **fields) for _ in range(count)]

    async def claim(self, worker: WorkerId, name: str) -> ClaimedJob:
        return await self.env.claim_one(worker, queues=(TYPES[name],), names=(name,))

    async def end(self, worker: WorkerId, name: str, outcome: Outcome, count: int = 1, **fields: Any) -> list[JobId]:
        """Enqueue jobs, claim them, and end them after a moment."""
        made = []
        for _ in range(count):
            made += await self.put(name, priority=0, **fields)
            claimed = await self.claim(worker, name)
            await self.env.advance(timedelta(milliseconds=800))
            await self.env.close_attempt(claimed.token, outcome)
        return made

    async def long_life(self, worker: WorkerId) -> JobId:
        """Make a job that was retried, interrupted, and slept, with steps in each attempt."""
        (job_id,) = await self.put("orders.capture", priority=0, key="order:88214", enqueued_by="shop-eu-api")
        api = self.visitor.api
        claimed = await self.claim(worker, "orders.capture")
        await record(api, claimed, step("load", lasted=timedelta(milliseconds=84)))
        await self.env.advance(timedelta(seconds=30))
        failed = ErrorInfo(
            type="StepTimeout", message="no answer within 30 s", code="STEP_TIMEOUT", traceback="Trace …"
        )
        await self.env.close_attempt(claimed.token, Retried(error=failed, delay=timedelta(seconds=41)))
        await self.env.advance(timedelta(seconds=42))
        await self.env.driver.promote()
        claimed = await self.claim(worker, "orders.capture")
        await self.env.advance(timedelta(seconds=6))
        await self.env.close_attempt(claimed.token, Interrupted(cause="drain"))
        claimed = await self.claim(worker, "orders.capture")
        await record(api, claimed, NewStep(**_named("charge", 1, 1_800)))
        await self.env.advance(timedelta(seconds=4))
        await suspend(api, claimed, NewWait(**_sleep("cool-off", 2, timedelta(hours=1))))
        await self.env.advance(timedelta(hours=1, seconds=1))
        await self.env.driver.wake()
        claimed = await self.claim(worker, "orders.capture")
        await say(api, claimed, "asked for approval", progress=(0.6, "waits for approval"))
        return job_id


def _named(name: str, number: int, ms: int) -> dict[str, Any]:
    lasted = timedelta(milliseconds=ms)
    return {"name": name, "kind": StepKind.RUN, "place": Place("", number), "value": '{"ok": true}', "lasted": lasted}


def _sleep(name: str, number: int, delay: timedelta) -> dict[str, Any]:
    return {"name": name, "kind": StepKind.SLEEP, "place": Place("", number), "delay": delay}


async def empty(stage: Stage) -> None:
    await stage.worker("node-a1")


async def an_hour(stage: Stage) -> None:
    """Let an hour pass in which attempts ended: some failed, a deploy interrupted some, at its end jobs waited."""
    for minute in range(60):
        is_late = minute > 44
        counts = (180 + 7 * minute % 40, 4 + 5 * minute % 7 + 12 * is_late, int(is_late), 6 * (minute == 17), 0, 0)
        waits = (*(20,) * 6, *(30 * is_late,) * 5, *(0,) * 5)
        await stage.env.driver.add_flow(
            flow_of(FlowPart("webhooks.deliver", "webhooks", Tally(counts=counts, waits=waits)))
        )
        await stage.env.advance(timedelta(minutes=1))


async def busy(stage: Stage) -> None:
    first, second = await stage.worker("node-a1"), await stage.worker("node-b1")
    stage.shown = await stage.long_life(first)
    await an_hour(stage)
    await stage.end(first, "receipts.send", Completed(result='{"sent": true}'), 14)
    await stage.put("emails.campaign", 9)
    for name, count in (("emails.campaign", 5), ("media.transcode", 2), ("webhooks.deliver", 4)):
        await stage.put(name, count, priority=0)
        for _ in range(count):
            await stage.claim(second, name)
    await stage.put("emails.digest", 6, run_at=stage.env.now() + timedelta(hours=2))
    await stage.end(first, "webhooks.deliver", Retried(error=AWAY, delay=timedelta(minutes=3)), 2)


async def failing(stage: Stage) -> None:
    await busy(stage)
    worker = await stage.worker("node-c1")
    dead = DeadReason.ATTEMPTS_EXHAUSTED
    for count in (2, 1, 5, 12):
        await stage.end(worker, "receipts.send", DeadLettered(error=SMTP, reason=dead), count)
        await stage.env.advance(timedelta(minutes=40))
    (stage.shown, *_) = await stage.end(
        worker, "orders.capture", DeadLettered(error=DECLINED, reason=DeadReason.TERMINAL), 3
    )
    await stage.end(worker, "webhooks.deliver", DeadLettered(error=AWAY, reason=dead), 21)
    await stage.end(worker, "emails.digest", Cancelled(reason="no longer wanted"), 2)
    await stage.end(worker, "media.transcode", Held(reason="the step charge is missing in 9c1e0b7"), 1)
    await stage.visitor.act("/queues/mail/pause", {"reason": "warehouse maintenance", "minutes": "60"})
    await stage.env.advance(timedelta(minutes=12))


async def draining(stage: Stage) -> None:
    old = await stage.worker("node-a1", "4f2c9e1")
    for name in ("media.transcode", "orders.capture", "webhooks.deliver"):
        await stage.put(name, priority=0)
        claimed = await stage.claim(old, name)
        stage.shown = claimed.token.job_id
    for host in ("node-b1", "node-c1", "node-d1"):
        await stage.worker(host)
    leaving = DrainShown(phase="inflight", reason="SIGTERM", left=timedelta(seconds=21.8), told=timedelta(seconds=3.2))
    await stage.env.driver.show_worker(old, wakeup="listen", drain=leaving)


SCENES: dict[str, Callable[[Stage], Awaitable[None]]] = {
    "empty": empty,
    "busy": busy,
    "failing": failing,
    "draining": draining,
}
