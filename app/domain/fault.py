"""The root of every error: a stable code, what happened with names and ids, and a repair that works.

`retryable` and `terminal` are facts of the class, never of the moment. HTTP statuses live at the edge.
"""

from __future__ import annotations

from typing import ClassVar


class OutlastError(Exception):
    """The root. `cause` says what happened, `fix` what to do about it; `details` are facts for machines."""

    code: ClassVar[str] = "INTERNAL"
    title: ClassVar[str] = "Something went wrong inside"
    retryable: ClassVar[bool] = False
    terminal: ClassVar[bool] = False

    def __init__(self, cause: str, *, fix: str, **details: object) -> None:
        super().__init__(cause)
        self.cause = cause
        self.fix = fix
        self.details = details

    def __str__(self) -> str:
        """Give code, cause and repair on one line."""
        return f"{self.code}: {self.cause} (fix: {self.fix})"
