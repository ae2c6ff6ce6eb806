"""Limits of job types: what is in force, who holds slots, another number, a slot taken back."""

from __future__ import annotations

from ..answers.limits import LimitInForce, Released, Slot
from ..call import Answer, Call, Page, get_items, get_pages, given, path, post
from ..wire import JobLike, TypeLike, id_of, name_of


def list_limits(*, name: TypeLike | None = None) -> Call[tuple[LimitInForce, ...]]:
    """Give the limits and rates of all job types, or of one."""
    return get_items("/v1/limits", LimitInForce, name=None if name is None else name_of(name))


def set_limit(name: TypeLike, limit: str, n: int | None, *, reason: str | None = None) -> Call[LimitInForce]:
    """Put another number in the place of a declared one; None gives the declared one back."""
    where = path("v1", "limits", name_of(name), limit)
    return Call(method="POST", path=where, read=_limit, body={"n": n, **given(reason=reason)})


def list_slots(
    *, name: TypeLike | None = None, tenant: str | None = None, limit: int | None = None
) -> Call[Page[Slot]]:
    """Give the slots that are held; `limit` is how many come in one page."""
    return get_pages("/v1/slots", Slot, name=None if name is None else name_of(name), tenant=tenant, limit=limit)


def release_slots(job: JobLike, *, reason: str | None = None) -> Call[Released]:
    """Take the slots of a job back, whatever its body does."""
    return post(path("v1", "jobs", id_of(job), "release-slots"), Released, reason=reason)


def _limit(answer: Answer) -> LimitInForce:
    return LimitInForce.model_validate_json(answer.body)
