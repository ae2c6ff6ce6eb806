"""The outbox as operators see it: what waits, what is quarantined, and replay.

Where one staged id leads is `staged`'s. Called by the HTTP routes and the command line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..domain.errors import NotImplementedYet
from ..domain.outbox import OutboxId, OutboxView
from ..drivers.outbox import OutboxStore

SHOWN = 50


class OutboxControl:
    """Reads the outbox, and replays what was quarantined."""

    def __init__(self, outbox: OutboxStore[Any] | None) -> None:
        self._outbox = outbox

    async def view(self, limit: int = SHOWN, *, tenant: str | None = None) -> OutboxView:
        """Give the outbox as it stands, with the newest quarantined rows; of these only one tenant's, if named."""
        view = await self._given().view(limit)
        return replace(view, items=tuple(item for item in view.items if tenant in {None, item.tenant}))

    async def replay(self, ids: Sequence[OutboxId] | None, *, may_double: bool = False) -> int:
        """Stage quarantined rows again, these or all; gives their number. Repeating it is safe.

        Rows that are too old to know whether they were published are staged only when named, with `may_double`.
        """
        return await self._given().replay(ids, may_double=may_double)

    def _given(self) -> OutboxStore[Any]:
        if self._outbox is None:
            raise NotImplementedYet("this store has no outbox", fix="set OUTLAST_DATABASE_URL to postgresql://…")
        return self._outbox
