"""Schedules: what they mean in words, when they fire next, what became of the last; fire now, pause, resume."""

from __future__ import annotations

from starlette.responses import Response

from ...control.schedules import SHOWN_OCCURRENCES
from ..visit import OPERATE, PAYLOADS, Visit


async def page(visit: Visit) -> Response:
    """Give every schedule."""
    found = await visit.services.schedules.list(with_payload=False, occurrences=SHOWN_OCCURRENCES)
    found = await visit.told(found)
    return visit.page("schedules.html", title="Schedules", at="schedules", schedules=found, may_act=visit.may(OPERATE))


async def one(visit: Visit) -> Response:
    """Give one schedule with its next fires and its last outcomes."""
    found = await visit.told(await visit.services.schedules.find(visit.part("name"), with_payload=visit.may(PAYLOADS)))
    return visit.page(
        "schedule.html", title=str(found["name"]), at="schedules", schedule=found, may_act=visit.may(OPERATE)
    )


async def fire(visit: Visit) -> Response:
    """Enqueue a job of a schedule now."""
    form, name = await visit.form(), visit.part("name")
    by = visit.acting(form)
    decided = await visit.services.schedules.fire(name, by=by, tenant=visit.tenant)
    if decided.job_id is None:
        return visit.go(f"/schedules/{name}", said=f"{decided.outcome.value}: {decided.why or 'no job was made'}")
    return visit.go(f"/jobs/{decided.job_id}", said="Fired: this is its job")


async def pause(visit: Visit) -> Response:
    """Let a schedule skip its occurrences."""
    form, name = await visit.form(), visit.part("name")
    by = visit.acting(form)
    await visit.services.schedules.pause(name, by=by.actor, reason=by.reason)
    return visit.go(f"/schedules/{name}", said="Paused: its occurrences are skipped")


async def resume(visit: Visit) -> Response:
    """Let it fire again from now on."""
    form, name = await visit.form(), visit.part("name")
    by = visit.acting(form)
    await visit.services.schedules.resume(name, by=by.actor, reason=by.reason)
    return visit.go(f"/schedules/{name}", said="Resumed: it fires again from now on")
