"""Whole fleets in virtual time, one world a seed: whatever goes wrong in it, the rules hold.

Some hundreds of worlds run in every test run, ten thousand under `soak`. A world that fails is replayed by its seed
alone; those that once failed are in `past_seeds.txt` and are looked at first.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from app.domain.outcome import OutcomeKind, SettleAnswer
from app.domain.state import DeadReason, State
from tests.simulation.record import Body, Closed, Fate, Moved, Rated, Recorded, Said, Settled, Slotted
from tests.simulation.seeds import failure, hold, past_seeds
from tests.simulation.world import simulate
from tests.support.source import CHECKOUT

QUICK = 500
LONG = 10_000
CHUNK = 50  # worlds of one test: enough that the cost of a test does not count, few enough to share them out

CHUNKS = [
    *range(1, QUICK, CHUNK),
    *(pytest.param(first, marks=pytest.mark.soak) for first in range(QUICK + 1, LONG, CHUNK)),
]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("first", CHUNKS, ids=lambda first: f"seeds{first}-{first + CHUNK - 1}")
def test_the_rules_hold_in_every_world(first: int) -> None:
    hold(range(first, first + CHUNK))


@pytest.mark.timeout(60)
def test_worlds_that_once_failed_hold() -> None:
    hold(past_seeds())


def test_a_seed_gives_the_same_history_again() -> None:
    for seed in (2, 19, 60):
        assert simulate(seed).history.lines() == simulate(seed).history.lines()


@pytest.mark.timeout(60)
def test_a_seed_gives_the_same_history_in_every_process() -> None:
    """Nothing in a world hangs on where objects lie, on how strings are hashed, or on what ran before it."""
    simulate(1)
    code = "from tests.simulation.world import simulate; print(simulate(19).history.digest())"
    for hash_seed in ("0", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        said = subprocess.run(
            [sys.executable, "-c", code], cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=True
        )
        assert said.stdout.strip() == simulate(19).history.digest()


def test_two_seeds_give_two_histories() -> None:
    assert simulate(3).history.digest() != simulate(4).history.digest()


def test_a_failure_names_its_seed_and_how_to_replay_it() -> None:
    said = failure(3, AssertionError("it is wrong"), simulate(3))
    assert said.startswith("seed 3: AssertionError: it is wrong\nreplay: python -m tests.simulation 3\n")


@pytest.mark.timeout(180)
def test_the_worlds_meet_everything_that_can_happen() -> None:
    """A simulation that has stopped to meet trouble would pass as well."""
    met: Counter[object] = Counter()
    for seed in range(1, 201):
        history = simulate(seed).history
        met.update(fact.outcome for fact in history.of(Closed))
        met.update(fact.answer for fact in history.of(Settled))
        met.update(fact.what.split()[0] for fact in history.of(Fate))
        met.update(fact.event for fact in history.of(Said))
        met.update(fact.what for fact in history.of(Body) if fact.step == "told")
        met.update(fact.target for fact in history.of(Moved))
        met.update(f"{fact.step} recorded" for fact in history.of(Recorded))
        met.update("slot taken" if fact.is_taken else "slot back" for fact in history.of(Slotted))
        met.update("rated" for _ in history.of(Rated))
        met.update(DeadReason(fact.reason or "") for fact in history.of(Moved) if fact.target == "dead")
    wanted = {
        *(set(OutcomeKind) - {OutcomeKind.COMPLETED, OutcomeKind.SUSPENDED, OutcomeKind.HELD}),
        *(set(SettleAnswer) - {SettleAnswer.DELETED}),
        *DeadReason,
        *("killed", "frozen", "sleeps", "clock", "told", "bound", "stops", "exits", "fails", "the"),
        *("claim.reconciled", "worker.lease_over", "worker.drain_abandoned", "attempt.abandoned", "settle.refused"),
        *("drain", "timeout", "deadline", "cancel", "lease_lost"),
        *(State.SUSPENDED, "first recorded", "beside recorded", "last recorded"),
        *("slot taken", "slot back", "rated"),
    }
    assert wanted <= set(met), f"never met: {wanted - set(met)}"
