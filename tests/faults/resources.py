"""What a process may hold, whatever happened to it: connections, transactions, locks, tasks, descriptors, threads.

The bounds on connections come from what is configured, each kind by itself: pools, listeners, wake-ups, heartbeats. A
process is measured from outside, its tasks from inside, once when it is warm and once after the faults; descriptors of
open sessions are not counted twice, since sessions have a bound of their own.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.processes import report
from tests.support.store import Store

POOL, LISTENERS, RINGERS, HEARTBEATS = "outlast", "outlast listen", "outlast notify", "outlast heartbeat"
OLDEST_IDLE_SECONDS = 5.0  # in a transaction
MOST_MORE = 5
_CALM_SECONDS = 10.0  # what was cut takes a moment to be noticed at the other end

_SESSIONS = """
select pid, application_name as name, state,
  extract(epoch from clock_timestamp() - state_change)::float8 as seconds
from pg_stat_activity where datname = current_database() and backend_type = 'client backend'"""
_ADVISORY = """
select count(*) as held from pg_locks
where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())"""


class Session(NamedTuple):
    """A session of ours as the server shows it; `seconds` is for how long it has been in its state."""

    pid: int
    name: str
    state: str
    seconds: float

    @property
    def is_ours(self) -> bool:
        """Say whether it is the product's, as all are that its drivers open, those of a test's own driver too."""
        return self.name.startswith(POOL)


def allowance(*, pools: Sequence[int], listeners: int, workers: int, others: int = 1) -> dict[str, int]:
    """Give how many sessions of each kind drivers with these pools may have.

    Each driver rings over one more, as do `others`, whose pools bear another name: a test's own.
    """
    return {POOL: sum(pools), RINGERS: len(pools) + others, LISTENERS: listeners, HEARTBEATS: workers}


# --- the server's side ------------------------------------------------------------------------------------------------


def too_many(sessions: Iterable[Session], allowed: Mapping[str, int]) -> list[str]:
    """Name each kind of session of which there are more than allowed; a kind without a bound is allowed none."""
    found = Counter(session.name for session in sessions if session.is_ours)
    return [
        f"{count} sessions are called {name!r}, {allowed.get(name, 0)} are allowed"
        for name, count in sorted(found.items())
        if count > allowed.get(name, 0)
    ]


def idle_in_transaction(sessions: Iterable[Session], *, oldest: float = OLDEST_IDLE_SECONDS) -> list[str]:
    """Name each session that does nothing in an open transaction, longer than `oldest` seconds."""
    return [
        f"{session.name!r}, process {session.pid}, is idle in a transaction for {session.seconds:.1f} s"
        for session in sessions
        if session.is_ours and session.state.startswith("idle in transaction") and session.seconds > oldest
    ]


async def sessions_of(store: Store) -> list[Session]:
    """Give every client's session on a store's database."""
    rows = await store.fetch(_SESSIONS)
    return [Session(row["pid"], row["name"], row["state"] or "", row["seconds"] or 0.0) for row in rows]


async def calm(
    store: Store,
    allowed: Mapping[str, int],
    *,
    oldest: float = OLDEST_IDLE_SECONDS,
    within: float = _CALM_SECONDS,
) -> None:
    """Hold a quiet store to the bounds; what is left of the last fault has `within` seconds to go away."""
    began = time.monotonic()
    while True:
        sessions = await sessions_of(store)
        (locks,) = await store.fetch(_ADVISORY)
        wrong = too_many(sessions, allowed) + idle_in_transaction(sessions, oldest=oldest)
        if locks["held"]:
            wrong.append(f"{locks['held']} advisory locks are held")
        if not wrong:
            report(
                f"sessions: {dict(Counter(session.name for session in sessions if session.is_ours))} of {dict(allowed)}"
            )
            return
        assert time.monotonic() - began < within, "; ".join(wrong)
        await asyncio.sleep(0.02)


# --- the process's side -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a process holds. `descriptors` are those that are no session's; `tasks` is 0 for another process."""

    tasks: int
    descriptors: int
    threads: int
    resident_kib: int

    def grown(self, warm: Usage, *, most: int = MOST_MORE) -> list[str]:
        """Name what there is more of than when it was warm, by more than `most`."""
        return [
            f"{getattr(self, what)} {what}, {getattr(warm, what)} when it was warm"
            for what in ("tasks", "descriptors", "threads")
            if getattr(self, what) > getattr(warm, what) + most
        ]


def usage_of(pid: int, *, sessions: int) -> Usage:
    """Measure a process that has this many sessions open."""
    told = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return Usage(
        tasks=len(_unfinished_tasks()) if pid == os.getpid() else 0,
        descriptors=len(list(Path(f"/proc/{pid}/fd").iterdir())) - sessions,
        threads=int(told["Threads"]),
        resident_kib=int(told["VmRSS"].split()[0]),
    )


async def measured(pid: int, store: Store) -> Usage:
    """Measure a process that is the only one with sessions on the database."""
    return usage_of(pid, sessions=len(await sessions_of(store)))


async def not_grown(pid: int, store: Store, warm: Usage, *, within: float = _CALM_SECONDS) -> None:
    """Hold a quiet process to what it held when it was warm."""
    began = time.monotonic()
    while wrong := (now := await measured(pid, store)).grown(warm):
        assert time.monotonic() - began < within, "; ".join(wrong)
        await asyncio.sleep(0.1)
    report(f"warm {warm}, now {now}: resident memory grew by {now.resident_kib - warm.resident_kib} KiB")


def _unfinished_tasks() -> list[asyncio.Task[Any]]:
    """Give the tasks of all loops in this process, those of other threads included; garbage is no task."""
    gc.collect()
    return [one for one in gc.get_objects() if isinstance(one, asyncio.Task) and not one.done()]
