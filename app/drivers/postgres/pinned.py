"""Tokens kept for one code version: they carry the id of a name of their own, `type@version`.

A worker claims the names of its types and of its types at its own version, so the claim knows nothing of versions; the
names of job types have no `@`. The envelope keeps the true name. Used by the verbs that claim, hand back and release.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...domain.job import WorkerId
from .database import Database

_VERSION = "select code_version from outlast.worker where id = $1"

# Of a worker `w`: it will take work. Of code that is live, somebody does.
STAYS = """w.lost_at is null and w.closed_at is null and w.lease_until > outlast.clock()
      and w.drain_asked_at is null and w.drain_phase is null"""


def served(version: str, queue: str) -> str:
    """Give the condition that a live worker of a code version takes jobs of a queue."""
    return f"""exists (
      select from outlast.worker w where w.code_version = {version} and {queue} = any(w.queues) and {STAYS})"""


def pinned_name(name: str, version: str) -> str:
    """Give the name that tokens of a type carry which are for one version."""
    return f"{name}@{version}"


def true_name(name: str) -> str:
    """Give the type's name of a token's."""
    return name.partition("@")[0]


async def names_of(db: Database, worker_id: WorkerId, names: Iterable[str]) -> frozenset[str]:
    """Give the names a worker claims: those of its types, and those of its types at its own version."""
    version = db.versions.get(worker_id)
    if version is None:
        version = await db.run(lambda conn: conn.fetchval(db.in_schema(_VERSION), worker_id))
        if version is None:
            return frozenset(names)
        db.versions[worker_id] = version
    asked = frozenset(names)
    known = db.claimed_names.get((asked, version))
    if known is None:
        known = asked | {pinned_name(name, version) for name in asked}
        db.claimed_names[asked, version] = known
    return known
