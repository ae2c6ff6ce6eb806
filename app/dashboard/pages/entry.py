"""Signing in and out, and the theme."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import RedirectResponse, Response

from ...domain.errors import OutlastError, Unauthenticated
from ..visit import THEME_COOKIE, THEMES, Visit

_A_YEAR_SECONDS = 365 * 24 * 3600


async def login_page(visit: Visit) -> Response:
    """Ask for a key."""
    return _asked(visit, nowhere_else(visit, visit.asked("next")), None)


async def login(visit: Visit) -> Response:
    """Let somebody in who has a key."""
    form = await visit.form()
    following = nowhere_else(visit, form.one("next"))
    response = RedirectResponse(following, HTTPStatus.SEE_OTHER)
    try:
        await visit.sessions.sign_in(form.one("key"), response)
    except Unauthenticated as error:
        visit.sessions.turned_away(visit.request, error)
        return _asked(visit, following, error)
    return response


async def logout(visit: Visit) -> Response:
    """Forget who somebody is."""
    await visit.form()
    response = visit.go("/login")
    await visit.sessions.sign_out(visit.request, response)
    return response


async def theme(visit: Visit) -> Response:
    """Keep a theme for this browser."""
    form = await visit.form()
    chosen = form.one("theme")
    response = RedirectResponse(nowhere_else(visit, form.one("next")), HTTPStatus.SEE_OTHER)
    response.set_cookie(
        THEME_COOKIE,
        chosen if chosen in THEMES else THEMES[0],
        max_age=_A_YEAR_SECONDS,
        path=visit.base or "/",
        httponly=True,
        samesite="strict",
    )
    return response


def nowhere_else(visit: Visit, address: str) -> str:
    """Give an address of our own pages: another one than that is the overview's."""
    path = address.partition("?")[0]
    is_ours = path.startswith(f"{visit.base}/") and "//" not in path and "\\" not in path
    return address if is_ours else f"{visit.base}/"


def _asked(visit: Visit, following: str, error: OutlastError | None) -> Response:
    status = HTTPStatus.OK if error is None else HTTPStatus.UNAUTHORIZED
    return visit.page("login.html", status=status, title="Sign in", next=following, error=error)
