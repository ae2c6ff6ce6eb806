"""Every page of the dashboard, where it is and which scope it needs. Called by the composition root."""

from __future__ import annotations

from starlette.types import ASGIApp

from .pages import entry, overview
from .services import DashboardServices
from .site import OPEN, At, Site
from .visit import READ

PLACES: tuple[At, ...] = (
    At(path="/login", page=entry.login_page, needs=OPEN),
    At(path="/login", page=entry.login, needs=OPEN, acts=True),
    At(path="/logout", page=entry.logout, needs=READ, acts=True),
    At(path="/theme", page=entry.theme, needs=READ, acts=True),
    At(path="/", page=overview.page, needs=READ),
)


def create_dashboard(services: DashboardServices) -> ASGIApp:
    """Build the pages over their services."""
    return Site(services, PLACES).app()
