"""A group of dead letters is retried and discarded as it is shown: that kind, all of it, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import quote

import pytest

from app.dashboard.pages.dead import group_of, key_of
from app.domain.bulk import ErrorKind
from app.domain.outcome import DeadLettered
from app.domain.snapshot import DeadGroup
from app.domain.state import DeadReason
from tests.dashboard.visitor import Visitor
from tests.http.api import failure
from tests.support.drivers import NAME

AT = datetime(2026, 11, 30, tzinfo=UTC)


async def dead(visitor: Visitor, code: str | None, type_: str = "ValueError") -> str:
    job = await visitor.api.post()
    error = replace(failure(code), type=type_)
    await visitor.api.finish(DeadLettered(error=error, reason=DeadReason.TERMINAL))
    return str(job["id"])


async def states(visitor: Visitor, bulk: str) -> dict[str, str]:
    await visitor.env.driver.bulk.step()  # type: ignore[attr-defined]  # the memory driver has operations
    items = (await visitor.browser.get(f"/v1/bulk-operations/{bulk}/items")).json()["items"]
    return {item["job_id"]: item["verdict"] for item in items}


@pytest.mark.parametrize("kind", [("AWAY", "ValueError"), (None, "ValueError"), ("AWAY", "odd~type~X")])
async def test_a_group_is_retried_and_no_other(visitor: Visitor, kind: tuple[str | None, str]) -> None:
    wanted = [await dead(visitor, *kind) for _ in range(2)]
    for other in (("BUSY", "ValueError"), ("AWAY", "KeyError"), (None, "KeyError")):
        await dead(visitor, *other)
    group = f"{NAME}~terminal~{kind[1]}~{kind[0] or ''}"
    asked = await visitor.send("/bulk/confirm", {"action": "retry", "group": group})
    assert "Retry 2 jobs" in asked.text
    assert kind[0] or kind[1] in asked.text
    made = await visitor.send("/bulk", {"action": "retry", "group": group, "expected": "2", "reason": "mended"})
    assert made.status_code == 303, made.text
    shown = await states(visitor, made.headers["location"].rpartition("/")[2])
    assert sorted(shown) == sorted(wanted)
    page = (await visitor.get(f"/dead?group={quote(group)}")).text
    assert f'value="{group}"' in page


async def test_a_group_that_has_grown_is_confirmed_again(visitor: Visitor) -> None:
    group = f"{NAME}~terminal~ValueError~AWAY"
    await dead(visitor, "AWAY")
    await dead(visitor, "AWAY")
    response = await visitor.send("/bulk", {"action": "delete", "group": group, "expected": "1", "typed": "1"})
    assert response.status_code == 409
    assert "Delete 2 jobs" in response.text
    assert f'name="group" value="{group}"' in response.text


@pytest.mark.parametrize("group", ["x", "a~b", "~~~", "demo.job~~x~y"])
async def test_a_word_that_names_no_group_is_refused(visitor: Visitor, group: str) -> None:
    assert (await visitor.send("/bulk/confirm", {"action": "retry", "group": group})).status_code == 422


@pytest.mark.parametrize("kind", [("T", "C"), (None, "C"), ("T", None), (None, None), ("a~b~", "C")])
def test_a_groups_word_reads_back(kind: tuple[str | None, str | None]) -> None:
    shown = DeadGroup(
        name=NAME, reason="terminal", error_type=kind[0], error_code=kind[1], count=1, first_at=AT, last_at=AT
    )
    assert group_of(key_of(shown)) == (NAME, ErrorKind(reason="terminal", type=kind[0], code=kind[1]))
