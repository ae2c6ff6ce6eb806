"""The reference of the HTTP API: every operation by subject, and one page for each. Nothing is sent from here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache

from starlette.responses import Response

from ...control.render import render
from ...domain.errors import NotFound
from ..reference import Json, Reference
from ..visit import Visit

Page = Callable[[Visit], Awaitable[Response]]


def reference_pages(describe: Callable[[], Json]) -> tuple[Page, Page, Page]:
    """Give the list of operations, the page of one, and the document; `describe` is asked once somebody looks."""

    @cache
    def reference() -> Reference:
        return Reference(describe())

    async def page(visit: Visit) -> Response:
        return visit.page("reference.html", title="API reference", at="docs", subjects=reference().subjects)

    async def one(visit: Visit) -> Response:
        found = reference().operations.get(visit.part("operation"))
        if found is None:
            raise NotFound("there is no such operation", fix="start from the list of operations")
        return visit.page("operation.html", title=found.summary, at="docs", operation=found)

    async def document(_visit: Visit) -> Response:
        return Response(render(describe(), pretty=True), media_type="application/json")

    return page, one, document
