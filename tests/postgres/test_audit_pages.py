"""A page of the audit looks at a bounded number of rows: who asks for the newest that fit gets them all the same."""

from __future__ import annotations

import pytest

from app.control.actors import Actors
from app.control.audit import AuditControl
from app.domain.audit import Action, AuditQuery, Target
from app.drivers.postgres.audit import SCANNED
from tests.postgres.arena import Arena
from tests.support.audit import an_entry

pytestmark = pytest.mark.postgres


async def test_the_newest_that_fit_are_found_behind_however_many_others(arena: Arena) -> None:
    for number in range(3):
        await arena.driver.keep_entry(an_entry(Action.QUEUE_PAUSE, f"q{number}", target_kind=Target.QUEUE))
    await arena.execute_all(
        "insert into outlast.audit(id, actor, action, target_kind, outcome, details) select gen_random_uuid(),"
        f" 'ada', 'job.cancel', 'job', 'done', '{{}}' from generate_series(1, {SCANNED})"
    )
    await arena.driver.keep_entry(an_entry(Action.QUEUE_PAUSE, "q3", target_kind=Target.QUEUE))
    audit = AuditControl(arena.driver, actors=Actors(None))
    query = AuditQuery(action=Action.QUEUE_PAUSE)
    assert (await arena.driver.audit(query)).next_before is not None
    assert [row.target for row in await audit.newest(query)] == ["q3", "q2", "q1", "q0"]
    assert [row.target for row in await audit.newest(AuditQuery(action=Action.QUEUE_PAUSE, limit=2))] == ["q3", "q2"]
