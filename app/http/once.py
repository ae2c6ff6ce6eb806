"""The `Idempotency-Key` header: a request that is repeated with it gets its first answer, and nothing is done again.

A route of `OnceRoute` reads its body, asks `claim_of` for the claim and hands it to the verb, which marks it in its own
commit. What the route answers is kept; what it refuses is forgotten, so that the key is free for another try. A fault
leaves the claim to its lease: whether something was done is not known then, and the mark says it to the next try.

Of a job that is answered, what people put into it is not kept: that is read from the job when the answer is given
again, and gone with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from ..control.render import render
from ..domain.audit import Acting
from ..domain.errors import JobNotFound, OutlastError, RequestInvalid
from ..domain.job import JobId
from ..domain.json_text import members
from ..domain.request_claim import KeptAnswer, RequestClaim
from .auth import Identity
from .body import SHOWN_ONCE, Body
from .caller import owner_of, route_path
from .prefer import read_preferences
from .problems import MALFORMED_HEADER, STATUS_DETAIL, is_fault
from .replies import shown_job
from .services import HttpServices

REPLAYED = "Idempotency-Replayed"
_HEADER = "idempotency-key"
_LONGEST = 255
# A string of RFC 8941, or, as many clients send it, the bare key.
_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
# Members of a job that hold what its makers and its code put there, and what stands for them in a kept answer.
_OF_JOB = frozenset({"payload", "result", "meta"})
_WITH_JOB = '{"kept":"with the job"}'
_OF_BODY = frozenset({"content-length", "content-type", "preference-applied"})
_BARE = re.compile(r"[!#-+\--:<-\[\]-~]+")


class ReplayedError(Exception):
    """Carries a kept answer past the route that has not run."""

    def __init__(self, answer: KeptAnswer) -> None:
        super().__init__("the request was answered before")
        self.answer = answer


class OnceRoute(APIRoute):
    """A route whose answer is kept when the request has a key of its own."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]  # as it is called
        """Give the handler, within what keeps and replays answers."""
        handle: Callable[[Request], Any] = super().get_route_handler()

        async def once(request: Request) -> Response:
            try:
                response: Response = await handle(request)
            except ReplayedError as replayed:
                return _minimal(request, _again(replayed.answer))
            except OutlastError as error:
                await _forget(request, error)
                raise
            await _keep(request, response)
            return _minimal(request, response)

        return once


async def claim_of(request: Request, services: HttpServices, identity: Identity, sent: Body) -> RequestClaim | None:
    """Give the claim of a request that has a key of its own; None for one without.

    Raises:
        ReplayedError: it was answered before.
        RequestInvalid: the header is no key.
        IdempotencyKeyReused, IdempotencyInFlight: see `RequestControl.claim`.
    """
    key = _key_of(request)
    if key is None:
        return None
    found = await services.requests.claim(
        key,
        owner=owner_of(identity),
        method=request.method,
        path=route_path(request.scope),
        sent=(sent.raw, request.url.query.encode()),
    )
    if isinstance(found, KeptAnswer):
        raise ReplayedError(await _filled(request, services, identity, found))
    request.state.claim, request.state.requests = found, services.requests
    return found


async def acting(
    request: Request, services: HttpServices, identity: Identity, sent: Body, reason: str | None
) -> Acting:
    """Give who acts, with the claim of the request. Raises what `claim_of` does."""
    return Acting(actor=identity.name, reason=reason, request=await claim_of(request, services, identity, sent))


def _key_of(request: Request) -> str | None:
    lines = request.headers.getlist(_HEADER)
    if not lines:
        return None
    text = lines[0].strip()
    quoted = _QUOTED.fullmatch(text)
    bare = text if _BARE.fullmatch(text) else ""
    key = bare if quoted is None else re.sub(r"\\(.)", r"\1", quoted[1])
    if len(lines) > 1 or not key.strip() or len(key) > _LONGEST:
        raise RequestInvalid(
            "the header Idempotency-Key is not a key",
            fix=f'send it once, as a quoted string of 1 to {_LONGEST} ASCII characters: Idempotency-Key: "8e03978e"',
            errors=[{"in": "header", "pointer": "/Idempotency-Key", "detail": "must be one quoted string"}],
            **{STATUS_DETAIL: MALFORMED_HEADER},
        )
    return key


def _minimal(request: Request, response: Response) -> Response:
    """Give an answer without its body to who prefers that."""
    if (
        request.method == "GET"
        or not response.body
        or getattr(request.state, SHOWN_ONCE, False)
        or not read_preferences(request.headers.getlist("prefer")).is_minimal
    ):
        return response
    applied = [response.headers.get("preference-applied", ""), "return=minimal"]
    headers = {name: value for name, value in response.headers.items() if name not in _OF_BODY}
    headers["Preference-Applied"] = ", ".join(filter(None, applied))
    return Response(status_code=response.status_code, headers=headers)


def _again(answer: KeptAnswer) -> Response:
    return Response(answer.body.encode(), status_code=answer.status, headers={**answer.headers, REPLAYED: "true"})


async def _keep(request: Request, response: Response) -> None:
    claim: RequestClaim | None = getattr(request.state, "claim", None)
    if claim is None:
        return
    headers = {name: value for name, value in response.headers.items() if name != "content-length"}
    body = bytes(response.body).decode()
    if body and getattr(request.state, "shown_job", None) is not None:
        body = _text({name: _WITH_JOB if name in _OF_JOB and text != "null" else text for name, text in _read(body)})
    answer = KeptAnswer(status=response.status_code, headers=headers, body=body)
    await request.state.requests.answer(claim, answer)


async def _filled(request: Request, services: HttpServices, identity: Identity, answer: KeptAnswer) -> KeptAnswer:
    """Give a kept answer with what the job has in the places that were left to it; null where the job is gone."""
    if _WITH_JOB not in answer.body:
        return answer
    kept = dict(_read(answer.body))
    try:
        view = await services.jobs.describe(JobId(UUID(json.loads(kept["id"]))), tenant=identity.tenant)
        now = dict(_read(render(await shown_job(request, identity, view)).decode()))
    except JobNotFound:
        now = {}
    filled = {name: now.get(name, "null") if text == _WITH_JOB else text for name, text in kept.items()}
    return replace(answer, body=_text(filled))


def _read(body: str) -> Iterable[tuple[str, str]]:
    return members(body).items()


def _text(found: Mapping[str, str]) -> str:
    """Give the document of members as it was rendered."""
    return "{" + ",".join(f'"{name}":{text}' for name, text in found.items()) + "}\n"


async def _forget(request: Request, error: OutlastError) -> None:
    claim: RequestClaim | None = getattr(request.state, "claim", None)
    if claim is not None and not is_fault(error):
        await request.state.requests.release(claim)
