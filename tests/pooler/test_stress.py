"""Everything at once through a transaction pooler, without one session setting of ours in force."""

from __future__ import annotations

import pytest

from tests.postgres.test_stress import run

pytestmark = [pytest.mark.postgres, pytest.mark.pooled]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_is_lost_or_done_twice_behind_a_pooler(pooled_url: str, database_url: str, seed: int) -> None:
    await run(pooled_url, count=2_000, seconds=6, seed=seed, watch_url=database_url)
