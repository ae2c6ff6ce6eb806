"""The `Prefer` header (RFC 7240): how long a request may wait, and whether its answer needs a body.

Preferences are wishes: unknown and malformed ones are ignored, as the RFC demands; what was applied is said in
`Preference-Applied`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

LONGEST_WAIT_SECONDS = 60
_WAIT = re.compile(r'^wait\s*=\s*"?([0-9]{1,9})"?$', re.IGNORECASE)
_MINIMAL = re.compile(r'^return\s*=\s*"?minimal"?$', re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """What the caller would like. `wait_seconds` is None where the request should not wait."""

    wait_seconds: int | None = None
    is_minimal: bool = False

    def applied(self) -> dict[str, str]:
        """Give the header that says for how long the request was ready to wait."""
        return {} if self.wait_seconds is None else {"Preference-Applied": f"wait={self.wait_seconds}"}


def read_preferences(headers: Sequence[str]) -> Preferences:
    """Read all `Prefer` headers of a request; the first of two like preferences counts."""
    wait: int | None = None
    is_minimal = False
    for part in ",".join(headers).split(","):
        preference = part.split(";", 1)[0].strip()
        match = _WAIT.match(preference)
        if match and wait is None:
            wait = min(int(match.group(1)), LONGEST_WAIT_SECONDS)
        is_minimal = is_minimal or _MINIMAL.match(preference) is not None
    return Preferences(wait_seconds=wait, is_minimal=is_minimal)
