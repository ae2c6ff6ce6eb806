"""Which rows each verb locks, read off the statements themselves: what it waits for, in order, and what it passes over.

Renders a part of docs/concepts/concurrency.md for `docs.generate`; `tests/architecture/test_lock_page.py` holds that
every statement that locks belongs to a verb and locks in the order of `ORDER`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from app.drivers.postgres import (
    bulk_apart,
    bulk_cancel,
    bulk_delete,
    bulk_edit,
    bulk_make,
    bulk_retry,
    bulk_step,
    cancel,
    claim,
    delete,
    enqueue_statements,
    events,
    expire,
    gate,
    gate_free,
    hand_back,
    heartbeat,
    held_still,
    limit_rules,
    limit_versions,
    lock_order,
    moves_in,
    moves_out,
    notes,
    outbox_claim,
    outbox_publish,
    outbox_rows,
    outbox_view,
    patch,
    promote,
    purge,
    purge_chores,
    purge_mark,
    purge_tables,
    reap,
    release,
    retry,
    retry_cut,
    run_now,
    schedules_decide,
    schedules_declare,
    set_aside,
    settle,
    settle_and_claim,
    settle_runs,
    slots,
    step_transaction,
    steps,
    suspend,
    turns,
    versions,
    waits,
    workers,
)

# Rows that several verbs want at once, from the first to be locked to the last; of a group each job has one.
ORDER: tuple[tuple[str, ...], ...] = (
    ("bulk",),
    ("purge_mark",),
    ("outbox",),
    ("declaration",),
    ("schedule",),
    ("limit_rule",),
    ("limit_key",),
    ("worker",),
    ("running",),
    ("slot",),
    ("wait",),
    ("suspended",),
    ("ready", "gate", "waiting", "held", "finished"),
    ("live_key",),
    ("source",),
    ("occurrence",),
)
RANK = {table: rank for rank, group in enumerate(ORDER) for table in group}
# What is inserted under a key that somebody else may be inserting, too, is waited for.
_BY_KEY = {"live_key", "source", "occurrence", "schedule", "declaration", "purge_mark", "bulk"}
# An ended run's waits are locked behind its `finished` row: nobody who holds a wait locks such a row.
BEHIND_THEIR_END = {"purge", "round of a purge", "delete"}

_ENQUEUE = (
    enqueue_statements.ENQUEUE,
    enqueue_statements.ENQUEUE_PLAIN,
    enqueue_statements.ENQUEUE_LIMITED,
    enqueue_statements.ENQUEUE_COUNTED,
    enqueue_statements.ENQUEUE_COUNTED_LIMITED,
    enqueue_statements.REMEMBER_SOURCES,
)
_FUSED = (
    settle_and_claim.SETTLE_AND_CLAIM_ONE,
    settle_and_claim.SETTLE_AND_CLAIM_MANY,
    settle_and_claim.SETTLE_DONE_AND_CLAIM_ONE,
    settle_and_claim.SETTLE_DONE_AND_CLAIM_MANY,
)
_BULK = (
    bulk_cancel.CANCEL,
    bulk_retry.RETRY,
    bulk_edit.RUN_NOW,
    bulk_edit.RESCHEDULE,
    bulk_edit.SET_PRIORITY,
    bulk_retry.RELEASE,
    bulk_delete.DELETE,
    bulk_cancel.HOLD,
    bulk_apart._HOLD_ENDED,
)
VERBS: dict[str, tuple[str, ...]] = {
    "enqueue": _ENQUEUE,
    "claim": (claim.CLAIM_ONE, claim.CLAIM_MANY, claim.CLAIM_LIMITED),
    "settle": (settle.SETTLE, settle.SETTLE_DONE, settle_runs._CLAIMS, settle_runs._DROP_WAITS, settle_runs._FORGET),
    "settle where plans are not ours": (lock_order._LOCKED,),
    "settle and claim": _FUSED,
    "suspend": (suspend.FENCE, suspend.SUSPEND),
    "record steps": (steps.RECORD,),
    "keep notes": (notes.NOTE,),
    "commit a step's transaction": (step_transaction.FENCE,),
    "renew": (heartbeat._RENEW,),
    "abandon": (heartbeat._ABANDON,),
    "register, show, ask to drain, close": (
        *(workers._REGISTER, workers._GIVE_UP_BOOT, workers._SHOW, workers._ASK, workers._CLOSE),
    ),
    "reap": (reap._MARK_LOST, reap._SWEEP),
    "surrender": (reap._SURRENDER,),
    "release, reconcile": (release.RELEASE, release.RECONCILE),
    "isolate": (release._ISOLATE,),
    "set aside": (set_aside._SET_ASIDE,),
    "hand back": (hand_back.HAND,),
    "release what is due": (versions._RELEASE_DUE,),
    "release by hand": (versions._RELEASE_HELD,),
    "promote": (promote.PROMOTE,),
    "expire": (expire._EXPIRE,),
    "emit": (events.WAITERS, events.EMIT),
    "wake": (waits.DUE_WAITS, waits.WAKE),
    "tell parents": (waits.CALLERS, waits.WAKE_PARENTS),
    "cancel": (cancel._CANCEL, cancel._DROP_WAITS),
    "retry": (retry._RETRY, retry_cut._STOPPED, retry_cut._FROM_HELD),
    "run now": (run_now._RUN_NOW,),
    "patch": (held_still._LOCK, patch._RERANK_READY, patch._RESCHEDULE, patch._TO_WAITING, patch._TO_READY),
    "delete": (delete.DELETE_ONE,),
    "make or abort a bulk operation": (bulk_make._NEW, bulk_make._SELECTED, bulk_make._ABORT, bulk_make._TRIM),
    "batch of a bulk operation": (bulk_step._TAKE, *_BULK, bulk_step._MARK),
    "purge": (purge._PURGE,),
    "round of a purge": (
        *(purge_mark.MAKE, purge._TIDY, purge_chores._TIDY, purge_chores._DONE_TO),
        *(purge_tables._PLACE, purge_tables._MOVE),
    ),
    "admit": (gate.LOCK_KEYS, gate.COUNT_KEYS, gate.ADMIT, gate_free.TAKE_FREE),
    "give slots back": (slots.LOCK_KEYS, slots.GIVE_BACK),
    "forget keys of limits": (slots.FORGET_KEYS,),
    "declare or set a limit": (limit_versions._CHOOSE, limit_rules._SET, slots.LOCK_KEYS, limit_rules.OPEN_KEYS),
    "line up by turns": (turns.LINE_UP,),
    "declare schedules": (
        *(schedules_declare._SHOW, schedules_declare._FIRST, schedules_declare._LOCK),
        *(schedules_declare._CHOOSE, schedules_declare._FORGET),
    ),
    "decide occurrences": (schedules_decide._LOCK, *_ENQUEUE, schedules_decide._KEEP, schedules_decide._ADVANCE),
    "fire a schedule": (schedules_decide._WAIT, *_ENQUEUE, schedules_decide._KEEP),
    "pause or resume a schedule": (schedules_declare._PAUSE, schedules_declare._RESUME),
    "trim occurrences": (schedules_declare._TRIM,),
    "move out": (*moves_out._STATEMENTS.values(),),
    "move in": (moves_in.REMEMBER, moves_in.TAKE_KEYS, moves_in.STORE),
    "give up a move": (moves_in.FORGET,),
    "close a move": (moves_out.CLOSE,),
    "publish beside the jobs": (outbox_publish._TAKE, *_ENQUEUE, outbox_publish._REMEMBER, outbox_publish._DELETE),
    "relay's claim, end, release, recovery": (
        *(outbox_claim._CLAIM, outbox_claim.END, outbox_claim._RELEASE, outbox_claim._RECOVER),
        *(outbox_rows._QUARANTINE, outbox_rows._DEFER, outbox_view._REPLAY),
    ),
}

_CLAUSE = re.compile(
    r"\bfor (?:no key update|update|key share|share)\b(?: of (?P<names>\w+(?:, ?\w+)*))?(?P<skips> skip locked)?"
)
_CHANGED = re.compile(r"(?:(?<!for )update|delete from) outlast\.(\w+)")
_INSERTED = re.compile(r"insert into outlast\.(\w+)")


class Lock(NamedTuple):
    """One lock that a statement asks for by name; `skips`: rows that somebody else has are passed over."""

    table: str
    skips: bool


def asked_for(sql: str) -> Iterator[Lock]:
    """Give the locks that a statement asks for by name, in the order of its text."""
    for clause in _CLAUSE.finditer(sql):
        select = _select_before(sql, clause.start())
        names = clause["names"]
        if names is None:
            tables = re.findall(r"(?:from|join) outlast\.(\w+)", _without_inner(select))
        else:
            aliases = "|".join(re.split(r", ?", names))
            tables = re.findall(rf"outlast\.(\w+) (?:as )?(?:{aliases})\b", select)
        for table in tables:
            yield Lock(table, skips=clause["skips"] is not None)


def passed_over(statements: Iterable[str]) -> set[str]:
    """Give the tables of which rows are passed over that somebody else has locked."""
    return {lock.table for sql in statements for lock in asked_for(sql) if lock.skips and lock.table in RANK}


def waited_for(statements: Iterable[str]) -> set[str]:
    """Give the tables whose rows are waited for: locked, changed or deleted, or inserted under somebody's key."""
    found = set[str]()
    for sql in statements:
        asked = list(asked_for(sql))
        by_hand = {lock.table for lock in asked if not lock.skips}
        changed = set(_CHANGED.findall(sql)) - {lock.table for lock in asked if lock.skips}
        found |= by_hand | changed | (_BY_KEY & set(_INSERTED.findall(sql)))
    return found & RANK.keys()


def page() -> list[tuple[str, str, str]]:
    """Give a row for each verb."""
    return [(verb, _in_order(verb, waited_for(sql)), _listed(passed_over(sql))) for verb, sql in VERBS.items()]


def _in_order(verb: str, tables: set[str]) -> str:
    last = tables & {"wait"} if verb in BEHIND_THEIR_END else set[str]()
    groups = [[table for table in group if table in tables - last] for group in ORDER] + [sorted(last)]
    return ", then ".join(" or ".join(f"`{table}`" for table in group) for group in groups if group) or "nothing"


def _listed(tables: set[str]) -> str:
    return ", ".join(f"`{table}`" for table in sorted(tables, key=lambda table: (RANK[table], table)))


def _select_before(sql: str, end: int) -> str:
    """Give what stands before a place, back to the parenthesis that opens around it."""
    depth = 0
    for place in range(end - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(sql[place], 0)
        if depth < 0:
            return sql[place + 1 : end]
    return sql[:end]


def _without_inner(sql: str) -> str:
    while (shorter := re.sub(r"\([^()]*\)", "", sql)) != sql:
        sql = shorter
    return sql
