"""Who was turned away: rows of the audit for requests without a key and beyond a key's scopes, and never too many.

Written beside the requests, alike ones counted in one row, so that a flood of them costs the store a row now and then.
What does not fit is counted, not listed. Called by `guard`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from uuid_utils.compat import uuid7

from ..domain.api_key import Identity
from ..domain.audit import Action, AuditEntry, Target
from ..domain.errors import OutlastError
from ..domain.text import storable
from ..drivers.protocol import JobDriver

# Of what is written at once; a process writes every ten seconds.
MOST_ROWS = 10
_LONGEST_PATH = 200
_ANONYMOUS = "anonymous"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One kind of refusal: whom, from where, with which code."""

    actor: str
    key_id: str | None
    tenant: str | None
    address: str | None
    code: str


class Refusals:
    """Counts refusals until they are written."""

    def __init__(self, driver: JobDriver) -> None:
        self._driver = driver
        self._counts: Counter[Refusal] = Counter()
        self._paths: dict[Refusal, str] = {}
        self._beyond = 0

    def note(self, error: OutlastError, identity: Identity | None, *, address: str | None, path: str) -> None:
        """Count one; `path` of the first of its kind is shown."""
        refusal = Refusal(
            actor=_ANONYMOUS if identity is None else identity.name,
            key_id=None if identity is None else identity.key_id,
            tenant=None if identity is None else identity.tenant,
            address=address,
            code=error.code,
        )
        if refusal not in self._counts and len(self._counts) >= MOST_ROWS:
            self._beyond += 1
            return
        self._counts[refusal] += 1
        self._paths.setdefault(refusal, storable(path, _LONGEST_PATH)[0])

    async def write(self) -> None:
        """Write what was counted; what the store does not take now is lost, and the log has it."""
        counts, paths, beyond = self._counts, self._paths, self._beyond
        self._counts, self._paths, self._beyond = Counter(), {}, 0
        for refusal, count in counts.items():
            details = {"count": count, "address": refusal.address, "path": paths[refusal]}
            await self._driver.keep_entry(_entry(refusal, {k: v for k, v in details.items() if v is not None}))
        if beyond:
            others = Refusal(actor=_ANONYMOUS, key_id=None, tenant=None, address=None, code="MORE")
            await self._driver.keep_entry(_entry(others, {"count": beyond}))


def _entry(refusal: Refusal, details: dict[str, object]) -> AuditEntry:
    return AuditEntry(
        id=uuid7(),
        actor=refusal.actor,
        action=Action.AUTH_REFUSED,
        target_kind=Target.AUTH if refusal.key_id is None else Target.KEY,
        target=refusal.key_id,
        tenant=refusal.tenant,
        outcome=refusal.code,
        details=details,
    )
