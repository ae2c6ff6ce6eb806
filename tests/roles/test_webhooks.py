"""Deliveries by a worker: over a real socket to a real receiver, signed, repeated, given up, sent again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from standardwebhooks import Webhook as Verifier

from app.control.webhooks import WebhookControl
from app.domain.audit import Acting
from app.domain.clock import ManualClock
from app.domain.errors import CallbackRefused, RequestInvalid
from app.domain.state import State
from app.domain.webhook import Callback, Delivery, DeliveryState, Webhook, WebhookChange, new_webhook_id
from app.domain.webhook_address import Allowed
from app.domain.webhook_secret import Masters
from app.drivers.memory.driver import MemoryDriver
from app.jobs import Client, Terminal, job, use_client
from app.observability.metrics import Metrics
from app.observability.telemetry import Telemetry
from app.webhooks.carrier import Carrier
from app.webhooks.sender import Sender
from tests.roles.harness import Bench, working
from tests.support.receiver import Received, Receiver, receiving

pytestmark = pytest.mark.timeout(60)

BY = Acting(actor="ada")
MASTERS = Masters(["m" * 32])
HOME = Allowed.of(["127.0.0.1"])


@job("quick.job")
async def quick() -> int:
    return 1


@job("sad.job")
async def sad() -> int:
    raise Terminal("no")


@dataclass
class Telling:
    """A worker that carries, a receiver, and a webhook that leads to it."""

    bench: Bench
    control: WebhookControl
    receiver: Receiver
    webhook: Webhook
    secret: str

    async def enqueue(self, name: str = "quick.job", **fields: Any) -> str:
        callback = Callback(webhook=self.webhook.id, **fields).text()
        return str(await self.bench.enqueue(name, callback=callback, traceparent=TRACE))

    async def delivery(self) -> Delivery:
        """Give the only delivery, once there is one."""
        async with asyncio.timeout(30):
            while not (found := (await self.control.deliveries(self.webhook.id, tenant=None)).items):
                await asyncio.sleep(0.005)
        assert len(found) == 1
        return found[0]

    async def until(self, state: DeliveryState) -> Delivery:
        async with asyncio.timeout(30):
            while (found := await self.delivery()).state is not state:
                await asyncio.sleep(0.005)
        return found


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@asynccontextmanager
async def telling(*, seconds: float = 5.0, url: str | None = None) -> AsyncIterator[Telling]:
    driver = MemoryDriver(ManualClock(datetime(2026, 11, 30, 12, tzinfo=UTC)))
    control = WebhookControl(driver.webhooks, masters=MASTERS, allowed=HOME)
    async with receiving() as receiver:
        carrier = Carrier(
            store=driver.webhooks,
            masters=MASTERS,
            sender=Sender(allowed=HOME, timeout=timedelta(seconds=seconds)),
            telemetry=Telemetry(metrics=Metrics()),
            now=lambda: datetime.now(UTC),
        )
        async with working(quick, sad, carrier.handle("default"), driver=driver) as bench:
            issued = await control.create(label="shop", url=url or receiver.url, tenant=None, by=BY)
            yield Telling(bench, control, receiver, issued.webhook, issued.secret)


def read(secret: str, request: Received) -> dict[str, Any]:
    """Read an event as receivers do."""
    event: dict[str, Any] = Verifier(secret).verify(request.body, request.headers)
    return event


async def test_an_end_is_told_as_a_signed_event() -> None:
    async with telling() as world:
        job_id = await world.enqueue(url=f"{world.receiver.url}/7?kind=shop")
        delivery = await world.until(DeliveryState.DELIVERED)
        (request,) = world.receiver.received
        event = read(world.secret, request)
        assert (request.method, request.target) == ("POST", "/hook/7?kind=shop")
        assert request.headers["host"] == f"127.0.0.1:{world.receiver.port}"
        assert request.headers["content-type"] == "application/cloudevents+json; charset=utf-8"
        assert request.headers["webhook-id"] == event["id"] == f"msg_{delivery.id.hex}"
        assert request.headers["traceparent"] == event["traceparent"] == TRACE
        assert {name: event[name] for name in ("specversion", "type", "source", "subject", "time")} == {
            "specversion": "1.0",
            "type": "jobs.run.completed.v1",
            "source": "/outlast/default",
            "subject": job_id,
            "time": "2026-11-30T12:00:00Z",
        }
        assert event["data"] == {
            "id": job_id,
            "run_id": job_id,
            "name": "quick.job",
            "queue": "default",
            "tenant": "default",
            "state": "done",
            "state_reason": None,
            "attempt": 1,
            "finished_at": "2026-11-30T12:00:00Z",
        }
        assert (delivery.tried, [tried.status for tried in delivery.tries]) == (1, [204])


async def test_only_the_ends_that_were_asked_for_are_told() -> None:
    async with telling() as world:
        await world.enqueue(ends=frozenset({State.DEAD}))
        dead = await world.enqueue("sad.job", ends=frozenset({State.DEAD}))
        (request,) = await world.receiver.until(1)
        event = read(world.secret, request)
        assert (event["type"], event["subject"]) == ("jobs.run.dead.v1", dead)
        assert (event["data"]["state"], event["data"]["state_reason"]) == ("dead", "terminal")


async def test_both_secrets_sign_while_they_overlap() -> None:
    async with telling() as world:
        turned = await world.control.rotate(world.webhook.id, tenant=None, by=BY, overlap=timedelta(hours=1))
        await world.enqueue()
        (request,) = await world.receiver.until(1)
        assert world.secret != turned.secret
        assert read(world.secret, request) == read(turned.secret, request)


async def _drip(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1\r\nx\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)


async def _flood(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n")
    while True:
        writer.write(b"x" * 65_536)
        await writer.drain()


async def _never(_writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(3_600)


@pytest.mark.parametrize("answer", [_drip, _flood], ids=["drips", "floods"])
async def test_a_receiver_that_never_stops_talking_has_taken_it(answer: Any) -> None:
    async with telling(seconds=2.0) as world:
        world.receiver.script = [answer]
        await world.enqueue()
        delivery = await world.until(DeliveryState.DELIVERED)
        assert [tried.status for tried in delivery.tries] == [200]
        assert len(world.receiver.received) == 1


async def _failing(world: Telling) -> Delivery:
    """Wait for a first try that failed."""
    async with asyncio.timeout(30):
        while not (found := await world.delivery()).tries:
            await asyncio.sleep(0.005)
    return found


MOVED = b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/latest\r\ncontent-length: 0\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        (500, 500, "answered 500"),
        (429, 429, "answered 429"),
        (MOVED, 302, "answered 302; redirects are not followed"),
        (b"not http at all\r\n\r\n", None, "RemoteProtocolError: illegal status line: bytearray(b'not http at all')"),
        (_never, None, "no answer within 2 s"),
    ],
    ids=["error", "too many", "redirect", "noise", "silence"],
)
async def test_what_is_not_taken_is_tried_again_under_its_id(answer: Any, status: int | None, said: str) -> None:
    async with telling(seconds=5.0 if answer is not _never else 2.0) as world:
        world.receiver.script = [answer]
        await world.enqueue()
        found = await _failing(world)
        assert [(tried.status, tried.error) for tried in found.tries] == [(status, said)]
        assert found.state is DeliveryState.PENDING
        assert found.carrier is not None
        await _waiting(world)
        await world.bench.driver.run_now(found.carrier)
        delivery = await world.until(DeliveryState.DELIVERED)
        first, second = await world.receiver.until(2)
        assert [tried.status for tried in delivery.tries] == [status, 204]
        assert first.body == second.body
        assert first.headers["webhook-id"] == second.headers["webhook-id"]
        assert read(world.secret, second) == json.loads(first.body)


async def test_a_receiver_that_is_down_is_tried_again() -> None:
    async with receiving() as gone:
        url = gone.url
    async with telling(url=url) as world:
        await world.enqueue()
        (tried,) = (await _failing(world)).tries
        assert (tried.status, tried.error) == (None, "ConnectError: All connection attempts failed")


async def test_a_receiver_that_is_gone_is_not_asked_again() -> None:
    async with telling() as world:
        world.receiver.script = [410]
        await world.enqueue()
        delivery = await world.until(DeliveryState.FAILED)
        webhook = await world.control.find(world.webhook.id, tenant=None)
        assert [tried.status for tried in delivery.tries] == [410]
        assert (webhook.is_disabled, webhook.disabled_why) == (True, "the receiver answered 410 Gone")
        assert delivery.carrier is not None
        await world.bench.until("attempt.dead", delivery.carrier)
        assert (await world.bench.view(delivery.carrier)).state is State.DEAD
        await world.control.change(webhook.id, WebhookChange(is_disabled=False), tenant=None, by=BY)
        await world.control.resend(webhook.id, str(delivery.id), tenant=None, by=BY)
        again = await world.until(DeliveryState.DELIVERED)
        first, second = world.receiver.received
        assert (first.headers["webhook-id"], first.body) == (second.headers["webhook-id"], second.body)
        assert (again.tried, again.id) == (2, delivery.id)


async def test_nothing_is_sent_to_a_webhook_that_is_disabled_or_deleted() -> None:
    async with telling() as world:
        change = WebhookChange(is_disabled=True, why="it moves")
        await world.control.change(world.webhook.id, change, tenant=None, by=BY)
        await world.enqueue()
        delivery = await world.until(DeliveryState.FAILED)
        assert [tried.error for tried in delivery.tries] == [f"webhook {world.webhook.id} is disabled: it moves"]
        await world.control.delete(world.webhook.id, tenant=None, by=BY)
        job_id = await world.enqueue()
        await world.bench.until("attempt.completed", job_id)  # type: ignore[arg-type] # its text
        assert world.receiver.received == []


async def test_a_budget_that_is_spent_ends_a_delivery() -> None:
    async with telling() as world:
        world.receiver.script = [503] * 12
        await world.enqueue()
        for _ in range(11):
            found = await _waiting(world)
            assert found.carrier is not None
            await world.bench.driver.run_now(found.carrier)
        delivery = await world.until(DeliveryState.FAILED)
        assert (delivery.tried, {tried.status for tried in delivery.tries}) == (12, {503})
        assert len({request.headers["webhook-id"] for request in world.receiver.received}) == 1


async def _waiting(world: Telling) -> Delivery:
    """Wait until the carrier waits for its next try."""
    async with asyncio.timeout(30):
        while True:
            found = await world.delivery()
            if found.carrier is not None and (await world.bench.view(found.carrier)).state is State.DELAYED:
                return found
            await asyncio.sleep(0.005)


async def test_code_names_webhooks_of_the_jobs_tenant_alone() -> None:
    async with telling() as world:
        with use_client(Client(world.bench.driver)):
            job = await quick.enqueue({}, callback=Callback(webhook=world.webhook.id))
            assert (await world.until(DeliveryState.DELIVERED)).ended.job_id == job.id
            for callback in (Callback(webhook=new_webhook_id()), Callback(webhook=world.webhook.id, url="http://a.b/")):
                with pytest.raises(CallbackRefused):
                    await quick.enqueue({}, callback=callback)
                with pytest.raises(CallbackRefused):
                    await quick.enqueue_many([{}, {}], callback=callback)
            with pytest.raises(CallbackRefused):
                await quick.enqueue({}, callback=Callback(webhook=world.webhook.id), tenant="acme")
            with pytest.raises(RequestInvalid, match="callback must be a Callback"):
                await quick.enqueue({}, callback=world.webhook.id)  # type: ignore[call-overload] # what it is about
