"""F26: whatever a body raises, on the loop, in a task of its own or in a thread, ends as a normal failed attempt."""

from __future__ import annotations

import random

import pytest

from app.domain.outcome import OutcomeKind
from app.domain.snapshot import AttemptView
from app.domain.state import State
from tests.faults.history import check
from tests.support.jobs_hostile import ERRORS
from tests.support.processes import LONG_LEASE, Fleet
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(90)]

ERROR_BYTES = 8 * 1024
TRACEBACK_BYTES = 32 * 1024
BODIES = ("faults.throw", "faults.throw_in_child", "faults.throw_sync")


async def test_every_exception_is_a_failed_attempt_and_the_neighbours_live(
    fleet: Fleet, store: Store, dice: random.Random
) -> None:
    """P52, P54: the worker, its lease and its other jobs stay as they are, and nothing unbounded is stored."""
    worker = fleet.worker("--concurrency", "200", **LONG_LEASE)
    await store.publish()
    neighbours = [await store.enqueue("faults.hold", {"gate": "neighbours"}) for _ in range(5)]
    neighbours += [await store.enqueue("faults.hold_sync", {"gate": "neighbours"}) for _ in range(5)]
    hostile = [(body, kind) for body in BODIES for kind in ERRORS]
    dice.shuffle(hostile)
    thrown = {await store.enqueue(body, {"kind": kind, "gate": "now"}): f"{body} {kind}" for body, kind in hostile}
    await worker.ready()
    fleet.ledger.open("now")
    for view in await store.all_until(list(thrown)):
        what = thrown[view.id]
        assert view.state is State.DEAD, what
        assert view.state_reason == "attempts_exhausted"
        assert (view.counters.attempt, view.counters.claim_no, view.counters.crashes) == (2, 2, 0), what
        attempts = await store.attempts(view.id)
        assert [a.outcome for a in attempts] == [OutcomeKind.RETRIED, OutcomeKind.DEAD_LETTERED], what
        for attempt in attempts:
            _is_sound(attempt, what)
        _is_readable(attempts[0], *what.split())
    fleet.ledger.open("neighbours")
    for view in await store.all_until(neighbours):
        assert (view.state, view.counters.claim_no) == (State.DONE, 1)
    assert worker.said("lease.lost") == []
    assert worker.said("worker.lease_over") == []
    assert len({row["worker"] for row in await store.fetch("select worker from outlast.finished")}) == 1
    assert "never retrieved" not in worker.text
    assert "\x1b" not in worker.text
    worker.terminate()
    assert await worker.gone() == 0
    await check(store, fleet.ledger.events(), acked=[*thrown, *neighbours])


READABLE = {
    "system_exit": ("SystemExit", "3"),
    "keyboard_interrupt": ("KeyboardInterrupt", ""),
    "silent": ("SilentError", "the message cannot be had"),
    "group": ("BaseExceptionGroup", "ValueError: one"),
    "nul": ("ValueError", "a"),
    "recursion": ("RecursionError", "maximum recursion depth"),
    "huge": ("ValueError", "xxx"),
}


def _is_readable(attempt: AttemptView, body: str, kind: str) -> None:
    error_type, text = READABLE.get(kind, ("", ""))
    assert attempt.error is not None
    assert error_type in {"", attempt.error.type}, f"{body} {kind}: {attempt.error}"
    assert text in attempt.error.message, f"{body} {kind}: {attempt.error}"


def _is_sound(attempt: AttemptView, what: str) -> None:
    error = attempt.error
    assert attempt.counted, what
    assert error is not None, what
    assert error.type, what
    assert len(error.message.encode()) <= ERROR_BYTES, what
    assert len((error.traceback or "").encode()) <= TRACEBACK_BYTES, what
    assert "\0" not in error.message, what
