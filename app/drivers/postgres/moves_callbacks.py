"""Callbacks of jobs that come from another store: whose webhook there is to be told here.

Reads the webhooks of the jobs' tenants, locks nothing and writes nothing. Called by `moves_in` in its transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from ...domain.moving import Receiver, callback_there
from .database import Database, Raw

_WEBHOOKS = "select w.id, w.tenant, w.label, w.url from outlast.webhook w where w.tenant = any($1::text[])"


class Told(NamedTuple):
    """Callbacks as they are to be here, by the id of the move; None of jobs that nobody asks about, or `unknown`."""

    callbacks: Mapping[UUID, str | None]
    unknown: frozenset[UUID]


async def told_here(db: Database, conn: Raw, documents: Mapping[UUID, dict[str, Any]]) -> Told:
    """Find the webhook here of every job that comes with a callback; `unknown` are the moves of those without one."""
    asking = {move: document for move, document in documents.items() if document["job"].get("callback") is not None}
    if not asking:
        return Told({}, frozenset())
    tenants = sorted({document["job"]["tenant"] for document in asking.values()})
    here: defaultdict[str, list[Receiver]] = defaultdict(list)
    for row in await conn.fetch(db.in_schema(_WEBHOOKS), tenants):
        here[row["tenant"]].append(Receiver(row["id"], row["label"], row["url"]))
    callbacks = {move: _one(document, here[document["job"]["tenant"]]) for move, document in asking.items()}
    return Told(callbacks, frozenset(move for move, callback in callbacks.items() if callback is None))


def _one(document: Mapping[str, Any], here: Sequence[Receiver]) -> str | None:
    was = document.get("webhook")
    there = None if was is None else Receiver("", was["label"], was["url"])
    return callback_there(document["job"]["callback"], there, here)
