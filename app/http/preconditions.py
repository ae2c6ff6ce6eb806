"""If-Match: what a caller says a job, a queue or a webhook still is, for actions that must not meet another one.

Strong comparison (RFC 9110): a weak tag matches nothing, and neither does a list without any. The part of an entity tag
that is about progress is left out: it changes while a body runs, and then nothing can be changed anyway.
"""

from __future__ import annotations

import re

from starlette.requests import Request

from ..domain.errors import PreconditionRequired, RequestInvalid

_TAG = re.compile(r'(W/)?"([!#-~\x80-\xff]*)"')
# Elements of a list may be empty. Behind each tag comes a comma, or nothing more.
_TAGS = re.compile(rf"[ \t,]*(?:{_TAG.pattern}[ \t]*(?:,[ \t,]*|$))*")


def versions_asked(request: Request, *, is_needed: bool, what: str = "a job") -> frozenset[str] | None:
    """Give the versions that If-Match names; None for any: it is `*`, or is not needed and not there.

    Raises:
        PreconditionRequired: it is needed and not there.
        RequestInvalid: it holds something else than entity tags.
    """
    lines = request.headers.getlist("if-match")
    if not lines:
        if is_needed:
            raise PreconditionRequired(
                f"{what} is only changed as it was seen", fix="GET it, and send the ETag it came with in If-Match"
            )
        return None
    text = ",".join(lines).strip()
    if text == "*":
        return None
    if _TAGS.fullmatch(text) is None:
        raise RequestInvalid(
            "If-Match holds something else than entity tags",
            fix='send the ETag as it was given, quotes included: If-Match: "9f2c1e0ab34d5566"',
            errors=[{"in": "header", "pointer": "/If-Match", "detail": "must be entity tags, or `*`"}],
        )
    return frozenset(tag[2].partition(".")[0] for tag in _TAG.finditer(text) if tag[1] is None)
