"""One text in every field that a store keeps and a page shows, past every check that stands before the store.

Names that admission would refuse are stored all the same: pages trust nobody.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from app.domain.drain import DrainedRun, DrainReport, DrainShown
from app.domain.flow import FlowPart, Tally
from app.domain.job import ClaimedJob
from app.domain.outcome import (
    Cancelled,
    Completed,
    DeadLettered,
    ErrorInfo,
    Held,
    Interrupted,
    Outcome,
    Retried,
    Suspended,
)
from app.domain.queue import QueueChange
from app.domain.snapshot import JobTypeDoc
from app.domain.state import DeadReason
from app.domain.step import NewWait, Place, StepKind
from tests.browser.sight import Sight
from tests.dashboard.test_webhooks import failed
from tests.dashboard.visitor import Visitor
from tests.http.api import job_type
from tests.http.runs import record, say, step
from tests.http.test_schedules import NIGHTLY, store_of
from tests.support.drivers import NAME, QUEUE
from tests.support.made import flow_of
from tests.support.outbox import outbox_env

HOUR = timedelta(hours=1)


class Hostile(Sight):
    """A browser in front of a service all of whose words are `text`."""

    async def fill(self, text: str) -> None:
        """Store the text wherever there is room for one."""
        self._text, self._paths = text, list[str]()
        visitor = self.visitor
        await visitor.env.driver.publish_job_types([_type(NAME, text), _type(text, text)])
        self.host = {"host": text, "code_version": text, "queues": (QUEUE, text), "names": (NAME, text)}
        await self._jobs()
        await self._fleet()
        self._paths += await _around(visitor, text)
        self._paths += [
            "/",
            "/jobs",
            "/jobs?size=200",
            "/queues",
            f"/queues/{QUEUE}",
            "/schedules",
            "/schedules/nightly",
        ]
        self._paths += ["/workers", "/types", f"/types/{NAME}", "/events", "/outbox", "/webhooks", "/bulk", "/system"]
        self._paths += ["/audit", "/keys", "/dead"]

    def paths(self) -> list[str]:
        """Give the address of every page that shows some of it, and of those that show what they are asked for."""
        return self._paths

    async def _jobs(self) -> None:
        text, env = self._text, self.visitor.env
        error = ErrorInfo(type=text, message=text, code=text, traceback=f"{text}\n  {text}")
        ends: tuple[Outcome, ...] = (
            Completed(result=json.dumps({text: text})),
            DeadLettered(error=error, reason=DeadReason.TERMINAL),
            Retried(error=error, delay=HOUR),
            Interrupted(cause="drain"),
            Cancelled(reason=text),
            Held(reason=text),
            Suspended(waits=(_wait(text),)),
        )
        for name, end in (*((NAME, each) for each in ends), (text, ends[1])):
            claimed = await self._claimed(name)
            await env.close_attempt(claimed.token, end)
            if isinstance(end, Interrupted):  # which is ready again, and so first in line
                await env.driver.cancel(claimed.token.job_id, reason=text)

    async def _claimed(self, name: str) -> ClaimedJob:
        """Give a job under a claim, that has done and said something."""
        text, env, api = self._text, self.visitor.env, self.visitor.api
        queue = QUEUE if name == NAME else text
        fields: dict[str, Any] = {
            "payload": json.dumps({text: text}),
            "meta": json.dumps({text: text}),
            "tags": (text,),
        }
        job_id = await env.enqueue(name, queue=queue, enqueued_by=text, **fields)
        self._paths.append(f"/jobs/{job_id}")
        claimed = await env.claim_one(await env.register(**self.host), queues=(queue,), names=(name,))
        await record(api, claimed, step(text, value=json.dumps(text)))
        await say(api, claimed, text, progress=(0.5, text))
        return claimed

    async def _fleet(self) -> None:
        text, env = self._text, self.visitor.env
        held = await self._claimed(NAME)
        leaving = held.token.worker_id
        await env.driver.ask_drain(leaving, by=text)
        await env.driver.show_worker(leaving, wakeup=text, drain=DrainShown(phase="inflight", reason=text, left=HOUR))
        gone = await env.register(**self.host)
        run = DrainedRun(job_id=held.token.job_id, claim_no=1, name=text, fate="interrupted", has_ignored=True)
        report = DrainReport(worker_id=gone, reason=text, lasted=timedelta(seconds=2), runs=(run,))
        async with env.driver.open_heartbeat() as heartbeat:
            await heartbeat.report_drain(report)
        await env.driver.close_worker(gone)
        await env.driver.add_flow(flow_of(FlowPart(text, text, Tally(counts=(1, 1, 1, 1, 1, 1)))))


async def _around(visitor: Visitor, text: str) -> list[str]:
    """Fill what is beside jobs and workers; gives the addresses of pages that have one of it, or are asked for it."""
    env, api = visitor.env, visitor.api
    for queue in (QUEUE, text):
        await env.driver.pause_queue(queue, by=text, reason=text)
        await env.driver.set_queue(queue, QueueChange(is_fair=True, weights={text: 2}))
    declared = NIGHTLY.declaration(code_version=text)
    document = json.dumps(
        {key: text if isinstance(value, str) else value for key, value in json.loads(declared.document).items()}
    )
    await store_of(api).declare([replace(declared, name=name, document=document) for name in ("nightly", text)])
    await store_of(api).pause("nightly", by=text, reason=text)
    async with outbox_env(env) as outbox:
        await outbox.staged(text, payload="{", queue=text)
        await outbox.publish()
    await api.client.post("/v1/events", json={"name": "order.approved", "key": text, "payload": {text: text}})
    url = "https://hooks.example.com/?" + re.sub(r"[ \\]", "", text)  # an address has neither blanks nor backslashes
    made = await api.client.post("/v1/webhooks", json={"label": text[:100], "url": url})
    assert made.status_code == 201, made.text
    webhook_id = made.json()["id"]
    await failed(visitor, webhook_id)
    made = await api.client.post("/v1/api-keys", json={"label": text[:100], "scopes": ["jobs:read"], "reason": text})
    assert made.status_code == 201, made.text
    key_id = made.json()["id"]
    asked = {"action": "retry", "selector": {"filter": {"name": NAME, "state": ["dead"]}}, "reason": text}
    made = await api.client.post("/v1/bulk-operations", json=asked)
    assert made.status_code in {200, 201, 202}, made.text
    group, q = quote(f"{NAME}~terminal~{text}~{text}", safe=""), quote(text, safe="")
    found = [f"/webhooks/{webhook_id}", f"/keys/{key_id}", f"/bulk/{made.json()['id']}", f"/dead?group={group}"]
    return [*found, f"/jobs?q={q}", f"/dead?q={q}", f"/audit?actor={q}", f"/?done={q}", f"/login?next={q}"]


def _type(name: str, text: str) -> JobTypeDoc:
    """Give a job type whose schema, words and policy are the text."""
    schema = {
        "type": "object",
        "title": text,
        "description": text,
        "properties": {text: {"title": text, "description": text, "default": text, "enum": [text, "x"]}},
    }
    made = job_type(name, schema=schema)
    document = {**json.loads(made.document), "doc": text, "version": text, "result_schema": schema}
    return replace(made, code_version=text, document=json.dumps(document))


def _wait(text: str) -> NewWait:
    place = Place("", 1)
    return NewWait(name=f"for {text}", kind=StepKind.EVENT, place=place, delay=HOUR, event=text, key=text)
