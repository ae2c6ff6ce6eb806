"""Job types: what they take and give, their policy, who runs which version; and a new job, from the type's schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from starlette.responses import Response

from ...control.jobs import EnqueueRequest
from ...domain.errors import OutlastError
from ...domain.snapshot import JobTypeDoc
from ..visit import WRITE, Form, Visit

_MOST_DELAY_SECONDS = 5 * 366 * 24 * 3600
_DEEPEST = 4


async def page(visit: Visit) -> Response:
    """Give every published type."""
    found = await visit.services.catalogue.all()
    workers = [w for w in await visit.services.fleet.workers() if w.closed_at is None and w.lost_at is None]
    known = {each.name: sum(worker.names is None or each.name in worker.names for worker in workers) for each in found}
    return visit.page(
        "types.html",
        title="Job types",
        at="types",
        types=[(each, json.loads(each.document)) for each in found],
        known=known,
    )


async def one(visit: Visit) -> Response:
    """Give a type, with a form for a new job of it."""
    return await _shown(visit, await visit.services.catalogue.describe(visit.part("name")))


async def enqueue(visit: Visit) -> Response:
    """Enqueue a job; what is refused comes back with the form as it was filled in."""
    form = await visit.form()
    published = await visit.services.catalogue.describe(visit.part("name"))
    try:
        placed = await visit.services.jobs.enqueue(
            _request(visit, form, published.name), tenant=visit.tenant, check_queue=visit.seen.visitor.check_queue
        )
    except OutlastError as error:
        return await _shown(visit, published, form=form, error=error)
    said = "A job had this key already: this is it" if placed.answer.deduped else "Enqueued"
    return visit.go(f"/jobs/{placed.answer.id}", said=said)


async def _shown(
    visit: Visit, published: JobTypeDoc, *, form: Form | None = None, error: OutlastError | None = None
) -> Response:
    document = json.loads(published.document)
    schema = document.get("payload_schema") or {}
    return visit.page(
        "type.html",
        status=200 if error is None else visit.services.status_of(error),
        title=published.name,
        at="types",
        type=published,
        document=document,
        payload_schema=_pretty(schema),
        result_schema=_pretty(document.get("result_schema")),
        policy=sorted(_flat(document.get("policy") or {})),
        sample=form.one("payload") if form is not None else _pretty(sample_of(schema, schema)),
        form=form or Form(),
        error=error,
        may_write=visit.may(WRITE),
    )


def _request(visit: Visit, form: Form, name: str) -> EnqueueRequest:
    delay = form.number("delay")
    return EnqueueRequest(
        name=name,
        payload_text=form.one("payload") or "{}",
        queue=form.one("queue") or None,
        priority=form.number("priority"),
        delay=None if delay is None else timedelta(seconds=min(max(delay, 0), _MOST_DELAY_SECONDS)),
        idempotency_key=form.one("key") or None,
        tags=tuple(form.one("tags").split()),
        enqueued_by=visit.seen.visitor.name,
        tenant=visit.tenant,
    )


def sample_of(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int = 0) -> Any:  # noqa: ANN401 - any JSON
    """Give a value such as a schema asks for: defaults and examples where there are some."""
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if name and depth < _DEEPEST:
        return sample_of(root.get("$defs", {}).get(name, {}), root, depth + 1)
    for key in ("default", "const"):
        if key in schema:
            return schema[key]
    for key in ("examples", "enum"):
        if schema.get(key):
            return schema[key][0]
    if depth < _DEEPEST:
        for key in ("anyOf", "oneOf", "allOf"):
            if schema.get(key):
                return sample_of(schema[key][0], root, depth + 1)
        if schema.get("type") == "object" or "properties" in schema:
            return {name: sample_of(each, root, depth + 1) for name, each in schema.get("properties", {}).items()}
    plain = {"string": "", "integer": schema.get("minimum", 0), "number": schema.get("minimum", 0), "boolean": False}
    return {**plain, "array": [], "object": {}}.get(str(schema.get("type")))


def _flat(policy: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    found = []
    for name, value in policy.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{before}{name}.")
        elif value is not None and value != []:
            found.append((f"{before}{name}", json.dumps(value, ensure_ascii=False)))
    return found


def _pretty(document: object) -> str | None:
    return None if document is None else json.dumps(document, indent=2, ensure_ascii=False)
