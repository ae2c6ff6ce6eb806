"""Who a visitor is from one page to the next: a signed cookie, and a token in every form.

The cookie carries the handle of a key, signed and with its age, and dies with the secret that was shown, or when its
owner signs out; the key itself is never kept. A form's token is bound to the visitor's session, and a request that
changes something must also come from a page of ours: browsers say so in `Sec-Fetch-Site` or `Origin`. Either check
alone would do; both are asked for.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from uuid import UUID, uuid4

from itsdangerous import BadData, URLSafeTimedSerializer
from starlette.requests import Request
from starlette.responses import Response

from ..domain.api_key import Identity
from ..domain.errors import Forbidden, OutlastError, Unauthenticated
from .door import Door

# Browsers keep such a cookie to the host it came from, and send it over TLS or to localhost alone.
COOKIE = "__Host-outlast"
_LASTS = timedelta(hours=12)
_SALT = "outlast.dashboard.session"
_EVERYBODY = "everybody"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A visitor who has been let in, and the token of its forms."""

    visitor: Identity
    token: str


class Sessions:
    """Signs visitors in and out, and knows them again."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def of(self, request: Request) -> Known:
        """Give who sent a request. Raises `UNAUTHENTICATED` for a stranger."""
        if self._door.is_open:
            return Known(visitor=await self._door.known(_EVERYBODY), token=self._token(_EVERYBODY))
        session, handle = self._read(request)
        await self._door.check_session(session)
        return Known(visitor=await self._door.known(handle), token=self._token(f"{session.hex}.{handle}"))

    async def sign_in(self, key: str, response: Response) -> None:
        """Let a browser in that has shown a key. Raises `UNAUTHENTICATED`."""
        signed = self._serializer().dumps(f"{uuid4().hex}.{await self._door.enter(key)}")
        response.set_cookie(
            COOKIE,
            signed,
            max_age=round(_LASTS.total_seconds()),
            path="/",
            secure=True,
            httponly=True,
            samesite="strict",
        )

    async def sign_out(self, request: Request, response: Response) -> None:
        """Take the cookie back, and let nobody in who has copied it."""
        if not self._door.is_open:
            await self._door.leave(self._read(request)[0], lasts=_LASTS)
        response.delete_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="strict")

    def check_token(self, known: Known, sent: str | None) -> None:
        """Refuse a form that was not made for this visitor. Raises `FORBIDDEN`."""
        if not hmac.compare_digest((sent or "").encode(), known.token.encode()):
            raise Forbidden("this form was made for another session", fix="open the page again, then send it again")

    def sealed(self, known: Known | None, said: str) -> str:
        """Give what a page shall say of an act, as it stands in an address: none but this visitor's pages say it."""
        said = said.strip()
        return f"{self._seal(known, said)}.{said}"

    def unsealed(self, known: Known | None, sealed: str) -> str:
        """Give what is to be said, nothing for what was not `sealed` here and for this visitor."""
        seal, _, said = sealed.partition(".")
        return said if hmac.compare_digest(seal.encode(), self._seal(known, said).encode()) else ""

    def turned_away(self, request: Request, error: OutlastError, visitor: Identity | None = None) -> None:
        """Note for the audit that a request was turned away."""
        address = None if request.client is None else request.client.host
        self._door.turned_away(error, visitor, address=address, path=request.url.path)

    def _read(self, request: Request) -> tuple[UUID, str]:
        """Give the session that a cookie stands for, and the handle of its key."""
        try:
            text = self._serializer().loads(request.cookies.get(COOKIE, ""), max_age=round(_LASTS.total_seconds()))
            session, _, handle = str(text).partition(".")
            return UUID(hex=session), handle
        except (BadData, ValueError):
            raise Unauthenticated("nobody is signed in", fix="sign in with a key") from None

    def _seal(self, known: Known | None, said: str) -> str:
        whose = "" if known is None else known.token
        return hmac.new(self._door.secret, f"said\0{whose}\0{said}".encode(), sha256).hexdigest()[:32]

    def _token(self, handle: str) -> str:
        return hmac.new(self._door.secret, f"form\0{handle}".encode(), sha256).hexdigest()[:32]

    def _serializer(self) -> URLSafeTimedSerializer:
        return URLSafeTimedSerializer(
            self._door.secret, salt=_SALT, signer_kwargs={"key_derivation": "hmac", "digest_method": sha256}
        )


def check_origin(request: Request) -> None:
    """Refuse a change that a page of another origin asks for through its visitor's browser. Raises `FORBIDDEN`."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    is_foreign = origin is not None and origin.partition("://")[2] != request.headers.get("host", "")
    if is_foreign or site not in {None, "same-origin", "none"} or (site is None and origin is None):
        raise Forbidden("a page of another origin may not change anything here", fix="use the form on our own page")
