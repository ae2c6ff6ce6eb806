"""The first page: what is wrong and where, how much is where, who works."""

from __future__ import annotations

from starlette.responses import Response

from ..visit import Visit


async def page(visit: Visit) -> Response:
    """Give the overview."""
    return visit.page("overview.html", title="Overview", at="overview")
