"""The system: what the doctor finds, with the repair beside each finding."""

from __future__ import annotations

from starlette.responses import Response

from ...control.doctor.documents import report_document
from ...control.render import render
from ..visit import Visit

_ORDER = ("fail", "warn", "skip", "ok")


async def page(visit: Visit) -> Response:
    """Give what the doctor finds now, the worst first."""
    report = await visit.services.doctor.examine()
    results = sorted(report.results, key=lambda result: _ORDER.index(result.finding.level.value))
    return visit.page("system.html", title="System", at="system", report=report, results=results)


async def raw(visit: Visit) -> Response:
    """Give the same as a document, to pass on."""
    report = await visit.services.doctor.examine()
    headers = {"Content-Disposition": 'attachment; filename="outlast-diagnostics.json"'}
    return Response(render(report_document(report)) + b"\n", media_type="application/json", headers=headers)
