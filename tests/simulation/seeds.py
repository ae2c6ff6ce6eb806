"""Which worlds are looked at, and what is said of one that fails: a seed, and the command that replays it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.simulation.checks import verify
from tests.simulation.world import Outcome, simulate

PAST = Path(__file__).with_name("past_seeds.txt")
_SHOWN = 25  # facts before the end


def past_seeds() -> tuple[int, ...]:
    """Give the seeds that are always replayed: the numbers each line begins with."""
    seeds: list[int] = []
    for line in PAST.read_text().splitlines():
        for word in line.split():
            if not word.isdigit():
                break
            seeds.append(int(word))
    return tuple(seeds)


def hold(seeds: Iterable[int]) -> None:
    """Hold worlds to the rules, one after the other.

    Raises:
        AssertionError: one of them broke a rule, with its seed and what replays it.
    """
    for seed in seeds:
        world = None
        try:
            world = simulate(seed)
            verify(world)
        except Exception as error:
            raise AssertionError(failure(seed, error, world)) from error


def failure(seed: int, error: BaseException, world: Outcome | None) -> str:
    """Say what is wrong with a world."""
    last = [] if world is None else world.history.lines()[-_SHOWN:]
    said = f"{type(error).__name__}: {error}"
    return "\n".join([f"seed {seed}: {said}", f"replay: python -m tests.simulation {seed}", "it ended with:", *last])
