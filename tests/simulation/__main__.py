"""`python -m tests.simulation SEED…` replays worlds: what was planned, all that happened, and which rule it broke.

`python -m tests.simulation FIRST-LAST` says only which worlds of a range break one.
"""

from __future__ import annotations

import sys
from dataclasses import fields

from tests.simulation.checks import verify
from tests.simulation.record import Fact
from tests.simulation.world import Outcome, simulate


def main(words: list[str]) -> int:
    """Replay what is asked for; gives the exit code."""
    if not words:
        print(__doc__)
        return 2
    failed = 0
    for word in words:
        first, dash, last = word.partition("-")
        for seed in range(int(first), int(last or first) + 1):
            world = simulate(seed)
            if not dash:
                show(world)
            failed += not holds(seed, world)
    return 1 if failed else 0


def holds(seed: int, world: Outcome) -> bool:
    try:
        verify(world)
    except AssertionError as error:
        print(f"seed {seed}: {error}")
        return False
    return True


def show(world: Outcome) -> None:
    plan = world.plan
    for name in ("lease", "drain", "horizon", "fleet", "patience", "odds", "options"):
        print(f"{name}: {getattr(plan, name)}")
    for fact in world.history.facts:
        print(line(fact))
    print(f"digest: {world.history.digest()}")


def line(fact: Fact) -> str:
    values = (str(getattr(fact, field.name)) for field in fields(fact) if field.name != "at")
    return f"{fact.at:10.4f}  {type(fact).__name__:8}{'  '.join(value for value in values if value)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
