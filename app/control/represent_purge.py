"""Dead letters and what a purge of them did, as documents of the HTTP API and of `--json`."""

from __future__ import annotations

from ..domain.snapshot import DeadGroup
from .purge import DeadPurge
from .render import Document


def dead_group_document(group: DeadGroup) -> Document:
    """Give a group of dead letters."""
    return {
        "name": group.name,
        "reason": group.reason,
        "error_type": group.error_type,
        "error_code": group.error_code,
        "count": group.count,
        "first_at": group.first_at,
        "last_at": group.last_at,
        "per_hour": list(group.per_hour),
        "message": group.message,
    }


def dead_purge_document(done: DeadPurge, *, dry: bool) -> Document:
    """Give what a request did."""
    return {
        "dry_run": dry,
        "count": done.purged,
        "is_complete": done.next_after is None,
        "next_after": done.next_after,
    }
