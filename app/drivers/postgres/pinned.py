"""Tokens kept for one code version: they carry the id of a name of their own, `type@version`.

A worker claims the names of its types and of its types at its own version, so the claim knows nothing of versions; the
names of job types have no `@`. The envelope keeps the true name. Used by the verbs that claim, hand back and release.
"""

from __future__ import annotations

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


# Of a token `{row}` that was claimed since it was handed back: its type's name. Nearly always there is no such row.
_TRUE_ID = """coalesce((
    select e.name_id from outlast.handed h join outlast.job e on e.id = h.job_id where h.job_id = {row}.job_id),
    {row}.name_id)"""


def true_id(row: str) -> str:
    """Give the expression for the id of a token's type, kept for one version or not."""
    return _TRUE_ID.replace("{row}", row)


def pinned_name(name: str, version: str) -> str:
    """Give the name that tokens of a type carry which are for one version."""
    return f"{name}@{version}"


def true_name(name: str) -> str:
    """Give the type's name of a token's."""
    return name.partition("@")[0]


async def names_of(db: Database, worker_id: WorkerId, names: frozenset[str]) -> frozenset[str]:
    """Give the names a worker claims: those of its types, and those of its types at its own version.

    Of the latter those that this process has published: a claim makes no names.
    """
    version = db.versions.get(worker_id)
    if version is None:
        version = await db.run(lambda conn: conn.fetchval(db.in_schema(_VERSION), worker_id))
        if version is None:
            return names
        db.versions[worker_id] = version
    known_then, claimed = db.claimed_names.get((names, version), (-1, names))
    if known_then != len(db.name_ids):
        pinned = (pinned_name(name, version) for name in names)
        claimed = names | {name for name in pinned if name in db.name_ids}
        db.claimed_names[names, version] = len(db.name_ids), claimed
    return claimed
