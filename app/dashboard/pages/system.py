"""The system: what the doctor finds with the repair beside it, what this process is set to, and its connections."""

from __future__ import annotations

import platform

from starlette.responses import Response

from ...control.doctor.documents import report_document
from ...control.doctor.finding import Report
from ...control.render import Document, render
from ..visit import Visit

_ORDER = ("fail", "warn", "skip", "ok")
# What people ask of a store first, each with the check that knows it.
_STORE = (
    ("server_version", "Server"),
    ("schema", "Migrations"),
    ("clock", "Clock skew"),
    ("connections", "Connections"),
)


async def page(visit: Visit) -> Response:
    """Give what the doctor finds now, the worst first."""
    report = await visit.services.doctor.examine()
    results = sorted(report.results, key=lambda result: _ORDER.index(result.finding.level.value))
    found = {result.check.code: result.finding for result in report.results}
    return visit.page(
        "system.html",
        title="System",
        at="system",
        report=report,
        results=results,
        store=[(title, found[code]) for code, title in _STORE if code in found],
        pool=visit.services.pool(),
        config=visit.services.config,
        python=platform.python_version(),
        diagnostics=render(_document(visit, report), pretty=True).decode(),
    )


async def raw(visit: Visit) -> Response:
    """Give the same as a document, to pass on."""
    document = _document(visit, await visit.services.doctor.examine())
    headers = {"Content-Disposition": 'attachment; filename="outlast-diagnostics.json"'}
    return Response(render(document) + b"\n", media_type="application/json", headers=headers)


def _document(visit: Visit, report: Report) -> Document:
    """Give all that helps somebody else to see what is wrong; no secret is among it."""
    services = visit.services
    return {
        "versions": {
            "outlast": services.version,
            "code": services.code_version,
            "python": platform.python_version(),
            "platform": platform.platform(),
        },
        "config": {variable: value for variable, value, is_set in services.config if is_set},
        "pool": services.pool(),
        "doctor": report_document(report),
    }
