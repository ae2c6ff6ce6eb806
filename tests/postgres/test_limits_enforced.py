"""Limits that nothing would enforce are not taken."""

from __future__ import annotations

import pytest

from app.domain.errors import LimitUnenforceable
from app.domain.snapshot import JobTypeDoc
from tests.conformance.gated import declare
from tests.postgres.arena import Arena
from tests.support.drivers import NAME

pytestmark = pytest.mark.postgres


async def test_limits_are_not_declared_where_nothing_would_enforce_them(arena: Arena) -> None:
    await arena.execute_all("alter table outlast.ready disable trigger into_gate")
    with pytest.raises(LimitUnenforceable) as refused:
        await declare(arena)
    await arena.driver.publish_job_types([JobTypeDoc(name=NAME, code_version="1", document="{}")])
    assert await arena.driver.stored_limits() == ()
    await arena.execute_all(refused.value.fix.removeprefix("run: ").partition(";")[0])
    await declare(arena)
