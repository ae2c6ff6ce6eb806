"""What the `type` of a problem document leads to: `GET /problems/{code}`."""

from __future__ import annotations

import inspect

from fastapi import APIRouter
from starlette.responses import Response

from ...domain.errors import NotFound, error_classes
from ..answers import ProblemType
from ..caller import AnyCaller
from ..documents import answer, problems
from ..problems import STATUS
from ..replies import reply

router = APIRouter(tags=["process"])

_EXAMPLE = {
    "code": "JOB_UNKNOWN",
    "title": "Nobody has published this job type",
    "status": 404,
    "description": "No worker has published this job type, or this process cannot evaluate its key or tenant.",
    "retryable": False,
}


@router.get(
    "/problems/{code}",
    operation_id="describeProblem",
    summary="What an error code means",
    response_model=None,
    responses={200: answer(ProblemType, "The code.", _EXAMPLE), **problems(404)},
)
async def describe_problem(code: str, _identity: AnyCaller) -> Response:
    """Say what a code stands for and whether repeating the request can help."""
    known = error_classes().get(code)
    if known is None:
        raise NotFound("there is no such code", fix="look at the `code` of a problem document")
    document = {
        "code": code,
        "title": known.title,
        "status": STATUS[code],
        "description": inspect.getdoc(known),
        "retryable": known.retryable,
    }
    return reply(document)
