"""The framework's own refusals, said in our words: no such route, no such method, query parameters that do not fit.

And the one refusal that is an answer: where a staged id leads. Other handlers only translate and raise on; the edge
renders. Called by `app`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..domain.errors import Internal, JobNotFound, NotFound, OutlastError, RequestInvalid
from ..domain.text import json_pointer
from .caller import route_path
from .problems import METHOD_NOT_ALLOWED, method_not_allowed
from .replies import leading_to, root_of

_NOT_FOUND = 404


async def translate_http_exception(request: Request, exc: Exception) -> NoReturn:
    """Raise the coded form of a routing refusal."""
    assert isinstance(exc, HTTPException)  # noqa: S101 - registered for this class only
    raise _coded(request, exc) from exc


async def translate_validation_error(_request: Request, exc: Exception) -> NoReturn:
    """Raise `REQUEST_INVALID` for parameters that do not fit; what was sent is not repeated."""
    assert isinstance(exc, RequestValidationError)  # noqa: S101 - registered for this class only
    raise refusal(parameter_errors(exc.errors())) from exc


async def lead_elsewhere(request: Request, exc: Exception) -> Response:
    """Answer a reading of a job that another one stands for with the way to the same of that job.

    An action is not redirected: clients repeat it, or drop its body, as each sees fit. Its problem names the job.
    """
    assert isinstance(exc, JobNotFound)  # noqa: S101 - registered for this class only
    existing, asked = exc.details.get("existing_id"), request.path_params.get("job_id")
    if request.method != "GET" or existing is None or asked is None:
        raise exc
    below = request.url.path.removeprefix(root_of(request))
    return leading_to(request, below.replace(asked, str(existing), 1), status=303)


def refusal(errors: Sequence[Mapping[str, str]]) -> RequestInvalid:
    """Give the error for fields that do not fit."""
    named = ", ".join(error["pointer"] or error["in"] for error in errors[:5])
    return RequestInvalid(
        f"{len(errors)} field{'s do' if len(errors) > 1 else ' does'} not fit: {named}",
        fix="correct the fields named in `errors`; /openapi.json describes them",
        errors=list(errors),
    )


def refuse_repeated(request: Request, *, lists: frozenset[str] = frozenset()) -> None:
    """Refuse a parameter that is given twice and is none of `lists`: which of the two was meant is not ours to say."""
    counts = Counter(name for name, _ in request.query_params.multi_items() if name not in lists)
    repeated = [name for name, count in counts.items() if count > 1]
    if repeated:
        raise refusal([{"in": "query", "pointer": f"/{name}", "detail": "is given twice"} for name in repeated])


def body_errors(exc: ValidationError) -> list[dict[str, str]]:
    """Give the JSON Pointer and the complaint of each field of a body that does not fit."""
    details = exc.errors(include_url=False, include_input=False, include_context=False)
    return [{"in": "body", "pointer": json_pointer(detail["loc"]), "detail": _complaint(detail)} for detail in details]


def parameter_errors(details: Sequence[Any]) -> list[dict[str, str]]:
    """Give the place and the complaint of each parameter that does not fit."""
    return [
        {"in": str(detail["loc"][0]), "pointer": json_pointer(detail["loc"][1:]), "detail": _complaint(detail)}
        for detail in details
    ]


def _coded(request: Request, exc: HTTPException) -> OutlastError:
    if exc.status_code == METHOD_NOT_ALLOWED:
        return method_not_allowed(request.method, _methods_at(request))
    if exc.status_code == _NOT_FOUND:
        return NotFound("there is nothing at this path", fix="see /openapi.json for what there is")
    return Internal(f"the framework answered {exc.status_code}", fix="see the log")


def _methods_at(request: Request) -> set[str]:
    """Give every method of the path: the framework names those of the first route there alone."""
    path = route_path(request.scope)
    routes = [context.original_route for context in iter_route_contexts(request.app.routes)]
    here = [route for route in routes if isinstance(route, Route) and route.path_regex.match(path)]
    return {method for route in here for method in route.methods or ()}


def _complaint(detail: ErrorDetails) -> str:
    return detail["msg"].removeprefix("Value error, ")
