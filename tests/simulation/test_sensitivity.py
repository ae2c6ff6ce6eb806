"""The simulation notices what it is for: each planted fault breaks a rule in a world that every run looks at."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.seeds import hold, past_seeds
from tests.simulation.test_simulation import QUICK

# Where a fault was found before it is looked for first: a world costs a twentieth of a second. A seed that finds it no
# more, as after any change of the simulation, or one that is missing, costs time and nothing else.
_FOUND_IN = {
    "a cancel ends nothing": 19,
    "a claim whose reply was lost is kept": 53,
    "a crash counts as nothing": 1859,
    "a deadline that lands in a stop is ignored": 13,
    "a drain is read off the exception": 9,
    "a drain may last longer": 9,
    "a job is dead for its neighbour's crash": 217,
    "a key is anybody's": 53,
    "a late reconciliation takes what was claimed since": 79,
    "a lease is judged from the reply": 14,
    "a limit holds nobody": 2,
    "a recorded step is done again": 1859,
    "a settle claims along while draining": 181,
    "a settle is not fenced": 908,
    "a source is forgotten": 44,
    "a wait that is over leaves no step": 1859,
    "a worker never judges its lease": 7,
    "an interruption counts as an attempt": 53,
    "nobody is told of a drain": 181,
    "the claims of the dead are not taken over": 181,
    "the claims of the living are taken over": 1859,
    "the heartbeat stops with the drain": 20,
    "the slots of the gone are nobody's": 189,
    "what has begun can expire": 181,
    "what is abandoned is not marked": 86,
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_fault_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.put(monkeypatch)
    worlds = (*past_seeds(), *range(1, QUICK + 1))
    first = _FOUND_IN.get(mutant.name)
    with pytest.raises(AssertionError, match=r"^seed \d+: "):
        hold((*((first,) if first in worlds else ()), *worlds))


def test_only_faults_that_are_planted_are_looked_for() -> None:
    assert set(_FOUND_IN) <= {mutant.name for mutant in MUTANTS}
