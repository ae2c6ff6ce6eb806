"""What the client raises: `ProblemError` for a refusal that was answered, `UnreachableError` where no answer came.

A problem is what the service says (RFC 9457), with its stable code and a repair; an answer that is none, from a proxy
for instance, is told apart by a code that begins with `HTTP_`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from .call import Answer

_FOREIGN_FIX = "look at what stands between here and the service, and whether base_url is the service's own"
_MOST_SHOWN = 200


class ProblemError(Exception):
    """The service refused. Programs look at `code`, people at `detail` and `fix`.

    `retryable` says that the same request may succeed later; the client has then tried for as long as it may. `errors`
    are the fields that do not fit, each with a JSON Pointer. `details` is the whole document: `existing_id` of a
    duplicate, `error` of a job that failed.
    """

    def __init__(self, status: int, document: dict[str, Any]) -> None:
        self.status = status
        self.details = document
        self.code = str(document.get("code", f"HTTP_{status}"))
        self.title = str(document.get("title", ""))
        self.detail = str(document.get("detail", self.title))
        self.fix = str(document.get("fix", ""))
        self.retryable = document.get("retryable") is True
        self.errors: list[dict[str, Any]] = document.get("errors") or []
        self.request_id: str | None = document.get("request_id")
        self.trace_id: str | None = document.get("trace_id")
        super().__init__(f"{self.code}: {self.detail} (fix: {self.fix})")

    def __reduce__(self) -> tuple[type[ProblemError], tuple[int, dict[str, Any]]]:
        """Cross process borders, as errors of tasks do."""
        return ProblemError, (self.status, self.details)


class UnreachableError(ConnectionError):
    """No answer came, for as long as the client may try. `maybe_done`: the service may have done it all the same."""

    def __init__(self, cause: str, *, maybe_done: bool) -> None:
        self.cause = cause
        self.maybe_done = maybe_done
        known = "whether it was done is unknown" if maybe_done else "it was not done"
        super().__init__(f"{cause}; {known} (fix: check base_url and that the service answers there, then repeat)")

    def __reduce__(self) -> tuple[Callable[..., UnreachableError], tuple[str]]:
        """Cross process borders, as errors of tasks do."""
        return partial(UnreachableError, maybe_done=self.maybe_done), (self.cause,)


def problem_of(answer: Answer) -> ProblemError:
    """Give the problem an answer of 400 and more is."""
    try:
        document = answer.json()
    except ValueError:
        document = None
    if isinstance(document, dict) and isinstance(document.get("code"), str):
        return ProblemError(answer.status, document)
    said = answer.body[:_MOST_SHOWN].decode(errors="replace").strip()
    detail = f"the answer {answer.status} is no problem document: {said!r}"
    return ProblemError(answer.status, {"detail": detail, "fix": _FOREIGN_FIX})


def unreadable(answer: Answer, reason: ValueError) -> ProblemError:
    """Give the problem of an answer that is none of the service's."""
    detail = f"the answer {answer.status} cannot be read: {str(reason)[:_MOST_SHOWN]}"
    return ProblemError(answer.status, {"detail": detail, "fix": _FOREIGN_FIX})
