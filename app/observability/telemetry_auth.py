"""What the way in says: the wording of its events. A part of `telemetry`."""

from __future__ import annotations

from .telemetry_attempts import Level


class AuthEvents:
    """The events of callers and their keys; whoever inherits them says how they are said."""

    def auth_note_failed(self, error: BaseException) -> None:
        """What was noted of callers, refusals or the use of their keys, could not be stored and is lost."""
        self._fail("auth.note_failed", error)

    def auth_wall_missing(self, schema: str) -> None:
        """Callers of one tenant are kept apart by the statements alone: the role they would read as is not there."""
        fix = f"let the owner of the schema {schema} make the role and grant it: see docs/operations/api-keys.md"
        self._warn("auth.wall_missing", schema=schema, fix=fix)

    def _fail(self, event: str, error: BaseException, **facts: object) -> None:
        raise NotImplementedError

    def _warn(self, event: str, *, level: Level = "warning", **facts: object) -> None:
        raise NotImplementedError
