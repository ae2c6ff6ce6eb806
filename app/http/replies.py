"""Answers as bytes: rendered JSON with the headers that belong to a job.

Called by the routers; problem documents are rendered in `problems`.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from ..control.render import render
from ..control.represent import version_of
from ..domain.snapshot import JobView

JSON_TYPE = "application/json"
# How long a client that polls may let pass; jobs are short, and a waiting client uses `Prefer: wait`.
RETRY_AFTER = {"Retry-After": "1"}


def reply(document: Mapping[str, object], *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Give a document as an answer."""
    return Response(render(document), status_code=status, media_type=JSON_TYPE, headers=dict(headers or {}))


def etag_of(view: JobView) -> str:
    """Give the entity tag of a job's representation."""
    return f'"{version_of(view)}"'


def is_known(view: JobView, if_none_match: str) -> bool:
    """Say whether the caller has this version already (weak comparison, RFC 9110)."""
    tags = {part.strip().removeprefix("W/") for part in if_none_match.split(",")}
    return "*" in tags or etag_of(view) in tags
