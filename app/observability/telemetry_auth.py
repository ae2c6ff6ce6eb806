"""What the way in says: the wording of its events. A part of `telemetry`."""

from __future__ import annotations


class AuthEvents:
    """The events of callers and their keys; whoever inherits them says how they are said."""

    def auth_note_failed(self, error: BaseException) -> None:
        """What was noted of callers, refusals or the use of their keys, could not be stored and is lost."""
        self._fail("auth.note_failed", error)

    def _fail(self, event: str, error: BaseException, **facts: object) -> None:
        raise NotImplementedError
