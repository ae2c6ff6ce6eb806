"""The `Idempotency-Key` header: a request that is repeated with it gets its first answer, and nothing is done again.

A route of `OnceRoute` reads its body, asks `claim_of` for the claim and hands it to the verb, which marks it in its own
commit. What the route answers is kept; what it refuses is forgotten, so that the key is free for another try. A fault
leaves the claim to its lease: whether something was done is not known then, and the mark says it to the next try.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from ..domain.audit import Acting
from ..domain.errors import OutlastError, RequestInvalid
from ..domain.request_claim import KeptAnswer, RequestClaim
from .auth import Identity
from .body import Body
from .caller import owner_of, route_path
from .problems import STATUS_DETAIL, is_fault
from .services import HttpServices

REPLAYED = "Idempotency-Replayed"
_HEADER = "idempotency-key"
_MALFORMED = 400
_LONGEST = 255
# A string of RFC 8941, or, as many clients send it, the bare key.
_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
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
                return _again(replayed.answer)
            except OutlastError as error:
                await _forget(request, error)
                raise
            await _keep(request, response)
            return response

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
        raise ReplayedError(found)
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
            **{STATUS_DETAIL: _MALFORMED},
        )
    return key


def _again(answer: KeptAnswer) -> Response:
    return Response(answer.body.encode(), status_code=answer.status, headers={**answer.headers, REPLAYED: "true"})


async def _keep(request: Request, response: Response) -> None:
    claim: RequestClaim | None = getattr(request.state, "claim", None)
    if claim is None:
        return
    headers = {name: value for name, value in response.headers.items() if name != "content-length"}
    answer = KeptAnswer(status=response.status_code, headers=headers, body=bytes(response.body).decode())
    await request.state.requests.answer(claim, answer)


async def _forget(request: Request, error: OutlastError) -> None:
    claim: RequestClaim | None = getattr(request.state, "claim", None)
    if claim is not None and not is_fault(error):
        await request.state.requests.release(claim)
