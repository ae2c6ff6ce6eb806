"""Keys of the API: who has one, what it may do; make one, give one a new secret, end one.

A secret is on the page that answers the form which made it, and on no other: it is not kept, and nothing leads back.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from http import HTTPStatus

from starlette.responses import Response

from ...control.keys import Issued, KeyOrder
from ...domain.api_key import KeyView, Scope
from ...domain.audit import AuditQuery, Target
from ...domain.errors import OutlastError, RequestInvalid
from ..visit import OPERATE, Form, Visit

SCOPES = {
    Scope.JOBS_READ: "see jobs, queues and workers; no payload",
    Scope.JOBS_WRITE: "enqueue jobs and emit events",
    Scope.PAYLOAD_READ: "see what went into jobs and came out",
    Scope.OPERATE: "cancel, retry, pause, drain; the system and the audit",
    Scope.ADMIN: "make and end keys such as these",
}
_SHOWN = 20
_MOST_DAYS = 3_650
_MOST_HOURS = 24 * 90


async def page(visit: Visit) -> Response:
    """Give every key of the visitor's tenant, those that are over last."""
    return await _listed(visit, Form(), None)


async def create(visit: Visit) -> Response:
    """Make a key, and show its token this once; what cannot be made comes back with its form."""
    form = await visit.form()
    try:
        issued = await visit.services.keys.create(_order(visit, form), by=visit.acting(form), grant=visit.seen.visitor)
    except OutlastError as error:
        return await _listed(visit, form, error)
    return _shown_once(visit, issued, status=HTTPStatus.CREATED)


async def one(visit: Visit) -> Response:
    """Give one key, what can be done to it, and what was done to it."""
    key = await visit.services.keys.find(visit.part("key_id"), tenant=visit.tenant)
    query = AuditQuery(target_kind=Target.KEY, target=key.id, tenant=visit.tenant, limit=_SHOWN)
    return visit.page(
        "key.html",
        title=key.label,
        at="keys",
        key=key,
        standing=standing_of(key, visit.now),
        scopes=SCOPES,
        rows=(await visit.services.audit.list(query, seen_by=visit.tenant)).items if visit.may(OPERATE) else None,
        is_own=key.id == visit.seen.visitor.key_id,
    )


async def rotate(visit: Visit) -> Response:
    """Give a key a new secret, and show it this once."""
    form = await visit.form()
    hours = _within(form, "hours", least=0, most=_MOST_HOURS)
    issued = await visit.services.keys.rotate(
        visit.part("key_id"),
        tenant=visit.tenant,
        by=visit.acting(form),
        overlap=timedelta(hours=24 if hours is None else hours),
        grant=visit.seen.visitor,
        replaces=form.one("replaces") or None,
    )
    return _shown_once(visit, issued, status=HTTPStatus.OK)


async def revoke(visit: Visit) -> Response:
    """End a key for good."""
    form = await visit.form()
    key = await visit.services.keys.revoke(visit.part("key_id"), tenant=visit.tenant, by=visit.acting(form))
    return visit.go("/keys", said=f"Revoked {key.label}: no process takes it after five seconds")


def standing_of(key: KeyView, now: datetime) -> tuple[str, str]:
    """Give a key's state, and the word for it."""
    if key.revoked_at is not None:
        return "cancelled", "revoked"
    if key.expires_at is not None and key.expires_at <= now:
        return "cancelled", "expired"
    return "ok", "in force"


async def _listed(visit: Visit, form: Form, error: OutlastError | None) -> Response:
    keys = await visit.services.keys.list(tenant=visit.tenant)
    standing = {key.id: standing_of(key, visit.now) for key in keys}
    return visit.page(
        "keys.html",
        status=200 if error is None else visit.services.status_of(error),
        title="Keys",
        at="keys",
        keys=sorted(keys, key=lambda key: standing[key.id][0] != "ok"),
        standing=standing,
        scopes={scope: words for scope, words in SCOPES.items() if visit.may(scope)},
        chosen=form.get("scope", []),
        form=form,
        error=error,
    )


def _shown_once(visit: Visit, issued: Issued, *, status: HTTPStatus) -> Response:
    return visit.page(
        "key_made.html", status=status, title=issued.key.label, at="keys", key=issued.key, secret=issued.token
    )


def _order(visit: Visit, form: Form) -> KeyOrder:
    known = {scope.value: scope for scope in Scope}
    asked = form.get("scope", [])
    if any(scope not in known for scope in asked):
        raise RequestInvalid("a scope is not known", fix=f"choose of {', '.join(known)}", pointer="/scope")
    days = _within(form, "days", least=1, most=_MOST_DAYS)
    return KeyOrder(
        label=form.one("label"),
        tenant=form.one("tenant") or visit.tenant,
        scopes=frozenset(known[scope] for scope in asked),
        queues=frozenset(form.one("queues").replace(",", " ").split()) or None,
        lasts=None if days is None else timedelta(days=days),
    )


def _within(form: Form, name: str, *, least: int, most: int) -> int | None:
    found = form.number(name)
    if found is not None and not least <= found <= most:
        raise RequestInvalid(f"{name} is out of range", fix=f"write {least} to {most}, or nothing", pointer=f"/{name}")
    return found
