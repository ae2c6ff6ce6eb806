"""What explain says and what a claim does, over many histories of the reference.

Those of PostgreSQL are `test_driver_machine`'s, which has the same command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from app.domain.clock import ManualClock
from tests.properties.test_driver_machine import DriverMachine
from tests.support.drivers import MemoryEnv, PostgresEnv
from tests.support.twins import START, Twins

FAST = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking takes minutes; an example names every command
)
THOROUGH = settings(FAST, max_examples=500, stateful_step_count=50)


class MemoryMachine(DriverMachine):
    """Every command of both drivers, given to the reference and to another of it, which never disagrees."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._second = MemoryEnv(ManualClock(START))
        super().__init__(runner, None)  # type: ignore[arg-type]  # there is no PostgreSQL here

    def _twins(self, runner: asyncio.Runner, postgres: PostgresEnv) -> Twins:
        return Twins(runner, self._second)


@pytest.fixture
def machine() -> Iterator[type[MemoryMachine]]:
    with asyncio.Runner() as runner:

        class Bound(MemoryMachine):
            def __init__(self) -> None:
                super().__init__(runner)

        yield Bound


@pytest.mark.timeout(180)
def test_what_is_said_to_be_runnable_is_what_a_worker_that_fits_claims(machine: type[MemoryMachine]) -> None:
    run_state_machine_as_test(machine, settings=FAST)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_same_holds_for_many_more_states(machine: type[MemoryMachine]) -> None:
    run_state_machine_as_test(machine, settings=THOROUGH)
