"""The simulation notices what it is for: each planted fault breaks a rule in a world that every run looks at."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.seeds import hold, past_seeds
from tests.simulation.test_simulation import QUICK


@pytest.mark.timeout(120)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_fault_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.put(monkeypatch)
    with pytest.raises(AssertionError, match=r"^seed \d+: "):
        hold((*past_seeds(), *range(1, QUICK + 1)))
