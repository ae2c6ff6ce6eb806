"""Whose numbers of limits are in force: those of the newest code version that counts.

A version's place is that of its first publication; declaring other limits under the same name makes it the newest. It
counts while it has workers, and for a while after it was published or its last worker has left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from ...domain.limit import VERSION_FORGOTTEN, VERSION_KEPT, LimitRule
from ..protocol import Wake
from .limit_rows import Version
from .store import Store


def show(store: Store, name: str, version: str, rules: Sequence[LimitRule], now: datetime) -> None:
    """Show what a code version declares, and let the newest one's rules be in force; for a caller in a statement."""
    limits = store.limits
    if not rules and not any(of == name for of, _ in limits.rules):
        return  # a type of which there never was a limit stays unknown
    known = limits.versions.setdefault(name, {})
    declared, before = tuple(sorted(rules, key=lambda rule: rule.limit)), known.get(version)
    if before is None or before.rules != declared:
        known[version] = Version(number=store.next_seq(), rules=declared, shown_at=now)
    else:
        known[version] = replace(before, shown_at=now)
    _choose(store, name, now)


def choose_anew(store: Store, now: datetime) -> None:
    """Let another version's rules be in force where the one that had them has gone; for a caller in a statement."""
    for name in list(forsaken(store, now)):
        _choose(store, name, now)


def forsaken(store: Store, now: datetime) -> Iterator[str]:
    """Name the job types whose version has gone while another counts; for a caller in a statement."""
    for name, version in store.limits.standing.items():
        others = store.limits.versions[name].keys() - {version}
        if not _counts(store, name, version, now) and any(_counts(store, name, other, now) for other in others):
            yield name


def _choose(store: Store, name: str, now: datetime) -> None:
    known = store.limits.versions[name]
    newest = max((of for of in known if _counts(store, name, of, now)), key=lambda of: known[of].number)
    store.limits.standing[name] = newest
    store.limits.declare(name, known[newest].rules)
    store.bell.add(Wake.READY)
    for of in [of for of in known if of != newest]:
        if known[of].shown_at < now - VERSION_FORGOTTEN and not _has_workers(store, of, now):
            del known[of]


def _counts(store: Store, name: str, version: str, now: datetime) -> bool:
    return store.limits.versions[name][version].shown_at > now - VERSION_KEPT or _has_workers(store, version, now)


def _has_workers(store: Store, version: str, now: datetime) -> bool:
    """Say whether a version has workers, or had one until a moment ago."""
    for worker in store.workers.values():
        left = worker.lost_at if worker.closed_at is None else worker.closed_at
        if worker.about.code_version == version and (left is None or left > now - VERSION_KEPT):
            return True
    return False
