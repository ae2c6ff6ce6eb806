"""What schemathesis is told about the service: what it cannot know, and what of its findings is none, with the reason.

Loaded into the process of schemathesis by `SCHEMATHESIS_HOOKS`; `conformance` starts it. Counts what every operation
answered, so that a run that reached nothing is not taken for one that found nothing.
"""

from __future__ import annotations

import atexit
import json
import os
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import schemathesis
from schemathesis import Case, HookContext, Response
from schemathesis.core.failures import Failure

# The key that must not be ended by the run that uses it, and where the counts go.
PROTECTED, COUNTS = "CONFORMANCE_PROTECTED", "CONFORMANCE_COUNTS"

_ACCEPTED, _REJECTED, _STILL_THERE = "ST201", "ST202", "ST301"
_NO_BODY = ("ST104", "ST109")
_NO_ID = "0" * 16
_REFUSED = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Excuse:
    """A kind of finding that is none. `detail` is matched against what the problem says of the request's fields.

    `operation` is matched against the method and the path; `code` is None where the answer is no problem.
    """

    finding: str
    why: str
    code: str | None = "REQUEST_INVALID"
    detail: str = ""
    operation: str = ""

    def fits(self, finding: str, operation: str, problem: dict[str, Any]) -> bool:
        """Say whether a finding is of this kind."""
        if (finding, problem.get("code")) != (self.finding, self.code) or not re.search(self.operation, operation):
            return False
        said = [str(problem.get("detail")), *(str(error.get("detail")) for error in problem.get("errors", ()))]
        return any(re.search(self.detail, text) for text in said)


EXCUSES = (
    Excuse(finding=_REJECTED, code="CURSOR_INVALID", why="a cursor is opaque: only what was given out is one"),
    Excuse(finding=_REJECTED, code="IDEMPOTENCY_KEY_REUSED", why="an example's key was sent with another body before"),
    Excuse(finding=_REJECTED, code="PRECONDITION_FAILED", why="the ETag is not the job's, which no schema knows"),
    Excuse(finding=_REJECTED, code="SCHEDULE_INVALID", why="no schema says which texts are cron rules and time zones"),
    Excuse(finding=_REJECTED, code="PAYLOAD_INVALID", why="the payload's schema is the job type's: GET /v1/job-types"),
    Excuse(
        finding=_REJECTED, code="JSON_INVALID", why="JSON without a schema of its own: NUL and the like cannot be kept"
    ),
    Excuse(
        finding=_REJECTED,
        operation="/v1/bulk-operations$",
        detail="does nothing to [a-z]+ jobs$",
        why="which states an action acts on is in the refusal; a rule for each action would drown the schema",
    ),
    Excuse(
        finding=_STILL_THERE,
        code=None,
        operation="/v1/api-keys/",
        why="a revoked key stays listed, as the description of its DELETE says",
    ),
    Excuse(
        finding=_REJECTED,
        operation="GET /v1/(jobs|stats)$",
        detail="are in an index$|^must be at most 20$|^must be one of [0-9]+[a-z]",
        why="OpenAPI has no words for parameters that depend on each other",
    ),
    Excuse(
        finding=_REJECTED,
        detail="^not with atomic: false$",
        why="OpenAPI has no words for a header that excludes a value of the body",
    ),
    Excuse(
        finding=_REJECTED,
        detail="(is in the past|is no instant of the calendar|within one day ago and five years ahead"
        "|run_at is out of range|expired already)$",
        why="a schema does not know what time it is",
    ),
    Excuse(
        finding=_REJECTED,
        detail="^Input should be a valid integer$",
        why="JSON Schema takes 5.0 for an integer; numbers are read here as they are written",
    ),
    Excuse(
        finding=_REJECTED,
        operation="POST /v1/(jobs|job-batches)$",
        detail="must be from 1 to [0-9]+( milliseconds)?, what .* declares$",
        why="how many attempts and how much time there are at most is the job type's: GET /v1/job-types",
    ),
    Excuse(finding=_REJECTED, code="CALLBACK_REFUSED", why="no schema says which addresses are of the public internet"),
    Excuse(
        finding=_REJECTED,
        detail="^must be printable characters",
        why="format characters and characters that are not assigned have no name that every dialect of patterns knows",
    ),
)


_counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
_protected = os.environ.get(PROTECTED)


@schemathesis.hook
def before_call(context: HookContext, case: Case[Any], kwargs: dict[str, Any]) -> None:
    """Keep the key of the run."""
    if case.path_parameters.get("key_id") == _protected:
        case.path_parameters["key_id"] = _NO_ID


@schemathesis.hook
def after_call(context: HookContext, case: Case[Any], response: Response) -> None:
    """Count the answers."""
    _counts[case.operation.label][str(response.status_code)] += 1


@schemathesis.hook
def filter_failure(context: HookContext, failure: Failure, case: Case[Any], response: Response) -> bool:
    """Let what is excused pass. An answer that was asked to have no body, and says so, is not missed in it."""
    applied = ",".join(response.headers.get("preference-applied", []))
    if failure.code in _NO_BODY and not response.content and "return=minimal" in applied:
        return False
    try:
        problem = response.json()
    except ValueError:
        return True
    if not isinstance(problem, dict):
        return True
    if failure.code == _ACCEPTED and case.operation.label == "POST /v1/job-batches":
        # With `atomic: false` each job is answered for itself: what does not fit is refused in its place.
        return all(item["status"] < _REFUSED for item in problem.get("items", ()))
    return not any(excuse.fits(failure.code, case.operation.label, problem) for excuse in EXCUSES)


@atexit.register
def _write_counts() -> None:
    if path := os.environ.get(COUNTS):
        Path(path).write_text(json.dumps(_counts, indent=1, sort_keys=True))
