"""The outbox as operators see it: what waits, what is quarantined, and replay.

Where one staged id leads is `staged`'s. Called by the HTTP routes and the command line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..domain.audit import Acting, Action, Target
from ..domain.errors import NotImplementedYet
from ..domain.outbox import OutboxId, OutboxView
from ..drivers.outbox import OutboxStore, outbox_of
from ..drivers.protocol import JobDriver
from .acting import entry_of

SHOWN = 50
MOST_NAMED = 20

# What a replay in another database than the audit's is said to have come to: what came of it is not known here.
ASKED = "asked"


class OutboxControl:
    """Reads the outbox, and replays what was quarantined."""

    def __init__(self, outbox: OutboxStore[Any] | None, *, driver: JobDriver) -> None:
        self._outbox = outbox
        self._driver = driver

    async def view(self, limit: int = SHOWN, *, tenant: str | None = None) -> OutboxView:
        """Give the outbox as it stands, with the newest quarantined rows; of these only one tenant's, if named."""
        return await self._given().view(limit, tenant=tenant)

    async def replay(
        self,
        ids: Sequence[OutboxId] | None,
        *,
        may_double: bool = False,
        tenant: str | None = None,
        by: str,
        reason: str | None = None,
    ) -> int:
        """Stage quarantined rows again, these or all; gives their number. Repeating it is safe.

        With `tenant` only that tenant's rows; another's, named, is passed over like one that is not there.
        Rows that are too old to know whether they were published are staged only when named, with `may_double`.
        """
        outbox, target = self._given(), "all" if ids is None else ",".join(str(row_id) for row_id in ids[:MOST_NAMED])
        audit = entry_of(Acting(actor=by, reason=reason), Action.OUTBOX_REPLAY, Target.OUTBOX, target, tenant=tenant)
        if audit is not None and outbox is not outbox_of(self._driver):
            # Two databases share no commit: the row comes first, so that nothing is done without one.
            await self._driver.keep_entry(audit.came_to(ASKED))
            audit = None
        return await outbox.replay(ids, may_double=may_double, tenant=tenant, audit=audit)

    def _given(self) -> OutboxStore[Any]:
        if self._outbox is None:
            raise NotImplementedYet("this store has no outbox", fix="set OUTLAST_DATABASE_URL to postgresql://…")
        return self._outbox
