"""What the `type` of a problem document leads to: `GET /problems/{code}`, for programs and for people.

It answers without a key: it says what is in the documentation, and who is told `UNAUTHENTICATED` has none.
"""

from __future__ import annotations

import html
import inspect

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from ...control.render import Document
from ...domain.errors import NotFound, error_classes
from ...domain.repairs import plain_repair
from ..answers import ProblemType
from ..documents import answer, problems
from ..problems import STATUS
from ..replies import reply

router = APIRouter(tags=["process"])

_EXAMPLE = {
    "code": "JOB_UNKNOWN",
    "title": "Nobody has published this job type",
    "status": 404,
    "description": "No worker has published this job type, or this process cannot evaluate its key or tenant.",
    "repair": "Start a worker whose OUTLAST_JOBS names the module that declares the job type.",
    "retryable": False,
}
_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{code}</title></head>
<body>
<h1>{code}</h1>
<p><strong>{title}.</strong> HTTP {status}; {again}.</p>
<h2>Cause</h2>
<p>{description}</p>
<h2>Repair</h2>
<p>{repair}</p>
</body>
</html>
"""


@router.get(
    "/problems/{code}",
    operation_id="describeProblem",
    summary="What an error code means",
    response_model=None,
    responses={
        200: {
            **answer(ProblemType, "The code; as a page for who prefers `text/html`.", _EXAMPLE, Vary="Accept."),
        },
        **{status: problem for status, problem in problems(404).items() if status in {404, 422}},
    },
    openapi_extra={"security": list[object]()},
)
async def describe_problem(request: Request, code: str) -> Response:
    """Say what a code stands for, what to do about it, and whether repeating the request can help."""
    known = error_classes().get(code)
    if known is None:
        raise NotFound("there is no such code", fix="look at the `code` of a problem document")
    document: Document = {
        "code": code,
        "title": known.title,
        "status": STATUS[code],
        "description": " ".join((inspect.getdoc(known) or "").split()),
        "repair": plain_repair(code),
        "retryable": known.retryable,
    }
    if "text/html" in request.headers.get("accept", ""):
        words = {name: html.escape(str(value)) for name, value in document.items()}
        again = "the same request may succeed later" if known.retryable else "repeating the request does not help"
        return HTMLResponse(_PAGE.format(**words, again=again), headers={"Vary": "Accept"})
    return reply(document, headers={"Vary": "Accept"})
