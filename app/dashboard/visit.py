"""One request for a page: who looks, what it asks, and the answers it can get.

A page is a function from a visit to an answer. What a visitor may do is asked of the visit; a page that changes
something reads its form through it, which is where a forged one is refused.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TypeVar
from urllib.parse import parse_qsl, quote, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ..domain.api_key import Scope
from ..domain.audit import Acting
from ..domain.errors import PayloadTooLarge, RequestInvalid
from .menu import Mark, Menu
from .services import DashboardServices
from .session import Known, Sessions, check_origin
from .views import Views

T = TypeVar("T")

_MOST_FIELDS = 2_000
# What fits into 64 bits, whatever its digits.
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_ROOM_FOR_FIELDS = 65_536
# A character of a payload is three in a form.
_ESCAPED = 3
_SEE_OTHER = 303
_LONGEST_REASON = 1_000
THEME_COOKIE = "outlast-theme"
THEMES = ("auto", "light", "dark")

READ, PAYLOADS, WRITE = Scope.JOBS_READ, Scope.PAYLOAD_READ, Scope.JOBS_WRITE
OPERATE, ADMIN = Scope.OPERATE, Scope.ADMIN


class Form(dict[str, list[str]]):
    """The fields of a form by name."""

    def one(self, name: str, default: str = "") -> str:
        """Give a field's only or last value, stripped."""
        return (self.get(name) or [default])[-1].strip()

    def number(self, name: str) -> int | None:
        """Give a field as a whole number, None where it is empty. Raises `REQUEST_INVALID`."""
        text = self.one(name).replace(",", "")
        if not text:
            return None
        if not _WHOLE.fullmatch(text):
            raise RequestInvalid(f"{name} is not a whole number", fix="write digits only", pointer=f"/{name}")
        return int(text)


@dataclass(frozen=True, kw_only=True)
class Visit:
    """A request, and what a page needs to answer it."""

    request: Request
    services: DashboardServices
    sessions: Sessions
    views: Views
    menu: Menu
    known: Known | None = field(default=None)

    @property
    def base(self) -> str:
        """Give the path of the pages, which every link begins with."""
        return str(self.request.scope.get("root_path", ""))

    @cached_property
    def now(self) -> datetime:
        """Give the instant that all ages of this answer are told from."""
        return self.services.now()

    @property
    def tenant(self) -> str | None:
        """Give the only tenant whose jobs may be seen, None for all."""
        return self.seen.visitor.tenant

    async def told(self, shown: T) -> T:
        """Give what is to be shown with the names of those who acted that the visitor may know."""
        return await self.services.actors.told(self.tenant, shown)

    @property
    def seen(self) -> Known:
        """Give the visitor; pages without one do not ask."""
        assert self.known is not None, "only the page to sign in is for strangers"  # noqa: S101 - see above
        return self.known

    @property
    def theme(self) -> str:
        """Give the theme that was chosen in this browser."""
        chosen = self.request.cookies.get(THEME_COOKIE, "")
        return chosen if chosen in THEMES else THEMES[0]

    @property
    def is_fragment(self) -> bool:
        """Say whether a script asks for a part of a page that is there already."""
        return "hx-request" in self.request.headers

    def may(self, scope: Scope) -> bool:
        """Say whether the visitor holds a scope."""
        return self.known is not None and self.known.visitor.may(scope)

    @property
    def marks(self) -> dict[str, Mark]:
        """Give what the menu says beside its entries."""
        return self.menu.marks() if self.has_marks else {}

    @property
    def has_marks(self) -> bool:
        """Say whether the visitor may know what the marks of the menu tell, which is of all tenants."""
        return self.may(READ) and self.tenant is None

    @property
    def is_admin(self) -> bool:
        """Say whether the visitor may make keys."""
        return self.may(ADMIN)

    def need(self, *scopes: Scope) -> None:
        """Raise `FORBIDDEN` unless the visitor holds every scope."""
        self.seen.visitor.check(*scopes)

    def acting(self, form: Form) -> Acting:
        """Give who acts, and the reason given in a form."""
        reason = form.one("reason")[:_LONGEST_REASON] or None
        return Acting(actor=self.seen.visitor.name, reason=reason)

    def asked(self, name: str) -> str:
        """Give a parameter of the address."""
        return self.request.query_params.get(name, "").strip()

    def asked_number(self, name: str) -> int | None:
        """Give a parameter of the address as a whole number, None for what is none, or below zero."""
        text = self.asked(name)
        return max(int(text), 0) if _WHOLE.fullmatch(text) else None

    def part(self, name: str) -> str:
        """Give a part of the path."""
        return str(self.request.path_params[name])

    def url(self, path: str, **params: object) -> str:
        """Give the address of a page, its path quoted part by part; parameters without a value are left out."""
        query = urlencode({name: value for name, value in params.items() if value not in {None, ""}}, doseq=True)
        return f"{self.base}{quote(path)}{'?' if query else ''}{query}"

    async def form(self) -> Form:
        """Read the form sent. Raises `FORBIDDEN` for one that was not made for this visitor."""
        check_origin(self.request)
        form = await read_form(self.request, most=self.services.payload_max_bytes * _ESCAPED + _ROOM_FOR_FIELDS)
        if self.known is not None:
            self.sessions.check_token(self.known, form.one("token"))
        return form

    def page(self, template: str, *, status: int = 200, title: str, at: str = "", **context: object) -> Response:
        """Answer with a page. `at` names the entry of the menu that it belongs to."""
        text = self.views.render(template, self._context(title=title, at=at) | context)
        return self._answer(text, status)

    def fragment(self, template: str, block: str, **context: object) -> Response:
        """Answer with one block of a page, or with nothing where the browser has it as it is."""
        return self._answer(self.views.block(template, block, self._context(title="", at="") | context), 200)

    def go(self, path: str, *, said: str = "", **params: object) -> Response:
        """Send the browser to a page, which shows what was done."""
        done = self.sessions.sealed(self.known, said) if said else None
        return RedirectResponse(self.url(path, done=done, **params), status_code=_SEE_OTHER)

    def _answer(self, text: str, status: int) -> Response:
        content = text.encode("utf-8", "replace")
        if status != 200 or self.request.method not in {"GET", "HEAD"}:  # noqa: PLR2004 - OK
            return Response(content, status_code=status, media_type="text/html")
        tag = f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
        headers = {"ETag": tag, "Vary": "Cookie, HX-Request"}
        if self.is_fragment and self.request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type="text/html", headers=headers)

    def _context(self, *, title: str, at: str) -> dict[str, object]:
        return {
            "v": self,
            "base": self.base,
            "now": self.now,
            "theme": self.theme,
            "title": title,
            "at": at,
            "token": self.known.token if self.known is not None else "",
            "visitor": self.known.visitor if self.known is not None else None,
            "done": self.sessions.unsealed(self.known, self.asked("done")),
        }


async def read_form(request: Request, *, most: int) -> Form:
    """Read the fields of a form, at most so many bytes."""
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > most:
            raise PayloadTooLarge(f"the form has more than {most:,} bytes", fix="send less", limit=most)
    form = Form()
    try:
        pairs = parse_qsl(content.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise RequestInvalid("the form cannot be read", fix="send the form of the page, with fewer fields") from None
    for name, value in pairs:
        form.setdefault(name, []).append(value)
    return form
