"""Answers as bytes: rendered JSON, and a job's with the headers and the part of it that its caller may see.

Called by the routers; problem documents are rendered in `problems`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from ..control.render import Document, render
from ..control.represent import job_document
from ..domain.edit import version_of
from ..domain.snapshot import JobView
from .auth import Identity, Scope
from .services import services_of

JSON_TYPE = "application/json"
# How long a client that polls may let pass; jobs are short, and a waiting client uses `Prefer: wait`.
RETRY_AFTER = {"Retry-After": "1"}
# What a query may hold as it is; whatever else somebody sent goes on in percents.
_OF_QUERIES = "%&=+;,:/?@!$'()*[]"


def reply(document: Mapping[str, object], *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Give a document as an answer, with a line end for whoever reads it in a terminal."""
    return Response(render(document) + b"\n", status_code=status, media_type=JSON_TYPE, headers=dict(headers or {}))


async def reply_job(request: Request, identity: Identity, view: JobView, **more: object) -> Response:
    """Give a job as an answer with its entity tag; keywords are fields beside its own."""
    return reply(await shown_job(request, identity, view) | more, headers={"ETag": etag_of(view)})


async def shown_job(request: Request, identity: Identity, view: JobView) -> Document:
    """Give a job as this caller may see it: payload and result need a scope, and lack what their type keeps back."""
    request.state.shown_job = view.id
    with_payload = identity.may(Scope.PAYLOAD_READ)
    redact = await (await services_of(request)).jobs.redaction.of(view.name) if with_payload else ()
    return job_document(view, with_payload=with_payload, root=root_of(request), redact=redact)


def root_of(request: Request) -> str:
    """Give the path the application is mounted under, which links begin with."""
    return str(request.scope.get("root_path", ""))


def leading_to(request: Request, path: str, *, status: int) -> Response:
    """Send a caller to a path of ours; what the request asks beside its path is asked there, too."""
    asked = quote(request.scope["query_string"], safe=_OF_QUERIES)
    return Response(status_code=status, headers={"Location": f"{root_of(request)}{path}{'?' if asked else ''}{asked}"})


def etag_of(view: JobView) -> str:
    """Give the entity tag of a job's representation: its version, and that of its progress, which is no part of it."""
    told = "" if view.progress is None else f".{view.progress.at.timestamp():.6f}"
    return f'"{version_of(view)}{told}"'


def is_known(etag: str, request: Request) -> bool:
    """Say whether the caller has this version already (weak comparison, RFC 9110)."""
    tags = {part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")}
    return "*" in tags or etag in tags


def reply_versioned(request: Request, document: Document, version: str) -> Response:
    """Give a document with its entity tag, or 304 to who has it; what its `version` leaves out is the tag's other half.

    An answer to a change is always given whole.
    """
    content = render(document)
    etag = f'"{version}.{hashlib.blake2b(content, digest_size=8).hexdigest()}"'
    if request.method == "GET" and is_known(etag, request):
        return Response(status_code=304, headers={"ETag": etag})
    return Response(content + b"\n", media_type=JSON_TYPE, headers={"ETag": etag})
