"""The application of the pages: its routes, who may see which, and how whatever goes wrong reads.

Every route names the scope it needs. Strangers are sent to sign in; an error is a page with its code, its cause and
its repair, also one of our own, which is reported once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match, Route, Router
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope

from ..domain.api_key import Scope
from ..domain.errors import (
    Forbidden,
    Internal,
    NotFound,
    NotImplementedYet,
    OutlastError,
    RequestInvalid,
    Unauthenticated,
)
from .assets import Assets
from .headers import PAGE_HEADERS
from .menu import Menu
from .services import DashboardServices
from .session import Known, Sessions
from .views import Views
from .visit import Visit

Endpoint = Callable[[Request], Awaitable[Response]]
Page = Callable[[Visit], Awaitable[Response]]


class Anyone(Enum):
    """Who may see a page that needs no scope: strangers, or everybody who has signed in."""

    STRANGER = "stranger"
    SIGNED_IN = "signed in"


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """Where a page is, what it needs; one that `acts` is sent a form.

    `about` names what is no matter of one queue alone, and so is kept from keys that are bound to queues.
    """

    path: str
    page: Page
    needs: Scope | Anyone
    acts: bool = False
    about: str | None = None


class Site:
    """Answers every request below `/ui`."""

    def __init__(self, services: DashboardServices, places: tuple[At, ...]) -> None:
        assets = Assets()
        self.places = places
        self._services = services
        self._assets = assets
        self._sessions = Sessions(services.door)
        facts = {"version": services.version, "code_version": services.code_version, "is_open": services.door.is_open}
        self._views = Views(assets, facts)
        self._menu = Menu(services)

    def app(self) -> ASGIApp:
        """Give the application, to be mounted."""
        routes = [Route("/static/{digest}/{name:path}", self._caught(self._static), methods=["GET"])]
        routes += [
            Route(at.path, self._caught(self._serving(at)), methods=["POST"] if at.acts else ["GET"])
            for at in self.places
        ]
        elsewhere = Route("/{path:path}", self._caught(_nowhere(tuple(routes))))
        elsewhere.methods = None  # whatever is asked
        routes.append(elsewhere)
        return _WithHeaders(Router(routes, redirect_slashes=False))

    async def _static(self, request: Request) -> Response:
        found = self._assets.serve(request.path_params["digest"], request.path_params["name"])
        if found is None:
            raise NotFound("there is no such file", fix="reload the page")
        return found

    def _serving(self, at: At) -> Endpoint:
        async def serve(request: Request) -> Response:
            if at.needs is Anyone.STRANGER:
                return await at.page(self._visit(request, None))
            known = await self._sessions.of(request)
            counted = self._services.count(known.visitor, at.path)
            visit = self._visit(request, known)
            if isinstance(at.needs, Scope):
                visit.need(at.needs)
            if at.about is not None:
                visit.seen.visitor.check_every_queue(at.about)
            if not at.acts and visit.has_marks:
                await self._menu.look()
            return _with(counted, await at.page(visit))

        return serve

    def _visit(self, request: Request, known: Known | None) -> Visit:
        return Visit(
            request=request,
            services=self._services,
            sessions=self._sessions,
            views=self._views,
            menu=self._menu,
            known=known,
        )

    def _caught(self, endpoint: Endpoint) -> Endpoint:
        async def answer(request: Request) -> Response:
            try:
                return await endpoint(request)
            except ClientDisconnect:
                raise
            except OutlastError as error:
                return await self._refusal(request, error, error)
            except Exception as exc:  # noqa: BLE001 - every failure becomes a page; what is ours is reported
                return await self._refusal(request, Internal(type(exc).__name__, fix="see the log"), exc)

        return answer

    async def _refusal(self, request: Request, error: OutlastError, exc: Exception) -> Response:
        is_page = request.method == "GET" and "hx-request" not in request.headers
        if isinstance(error, Unauthenticated) and is_page:
            root = request.scope.get("root_path", "")
            return RedirectResponse(f"{root}/login?{urlencode({'next': _address(request)})}", HTTPStatus.SEE_OTHER)
        try:
            known = await self._sessions.of(request)
        except OutlastError:
            known = None
        if isinstance(error, Forbidden) or (isinstance(error, Unauthenticated) and request.method == "POST"):
            # A page that is looked at without a session is no refusal: its visitor is asked to sign in.
            self._sessions.turned_away(request, error, None if known is None else known.visitor)
        status = self._services.status_of(error)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, NotImplementedYet):
            self._services.telemetry.request_failed(
                method=request.method, path=request.url.path, code=error.code, error=exc
            )
        visit = self._visit(request, known)
        page = visit.page("error.html", status=status, title=error.title, error=error)
        return _with(self._services.headers_of(error), page)


def _with(headers: Mapping[str, str], response: Response) -> Response:
    response.headers.update(headers)
    return response


def _nowhere(routes: Sequence[Route]) -> Endpoint:
    """Give what answers where no page is, and what nobody asks of a page with a browser."""

    async def refuse(request: Request) -> Response:
        found = (each.methods or () for each in routes if each.matches(request.scope)[0] is Match.PARTIAL)
        allowed = ", ".join(sorted(set().union(*found)))
        if allowed and request.method not in {"GET", "HEAD", "POST"}:
            details: dict[str, Any] = {"http_status": HTTPStatus.METHOD_NOT_ALLOWED, "http_headers": {"Allow": allowed}}
            raise RequestInvalid(f"{request.method} is not possible here", fix=f"use {allowed}", **details)
        raise NotFound("there is no such page", fix="start from the overview")

    return refuse


def _address(request: Request) -> str:
    query = request.url.query
    return f"{request.url.path}?{query}" if query else request.url.path


class _WithHeaders:
    """Puts the headers of pages on every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name.lower() for name, _ in message.get("headers", [])}
                more = [(name.lower().encode(), value.encode()) for name, value in PAGE_HEADERS]
                message["headers"] = [*message.get("headers", []), *(each for each in more if each[0] not in known)]
            await send(message)

        await self._app(scope, receive, with_headers)
