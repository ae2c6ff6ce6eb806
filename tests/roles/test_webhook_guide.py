"""The receiver of the guide, run as it stands against what the service sends over a real socket."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from app.domain.webhook import DeliveryState
from tests.roles.test_webhooks import telling
from tests.support.source import CHECKOUT

PAGE = (CHECKOUT / "docs/how-to/receive-webhooks.md").read_text()


@pytest.fixture
def guide(tmp_path: Path) -> dict[str, Any]:
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "example.py").write_text(block)
    return runpy.run_path(str(tmp_path / "example.py"))


async def test_the_receiver_of_the_guide_takes_what_is_sent_once(guide: dict[str, Any]) -> None:
    receive, seen = guide["receive"], guide["SEEN"]
    async with telling() as world:
        await world.enqueue()
        delivery = await world.until(DeliveryState.DELIVERED)
        (request,) = world.receiver.received
    assert receive(world.secret, request.body, request.headers) == 204
    assert receive(world.secret, request.body, request.headers) == 204
    assert seen == {f"msg_{delivery.id.hex}"}
    forged = request.body.replace(b"completed", b"cancelled")
    assert receive(world.secret, forged, request.headers) == 401
    assert receive("whsec_" + "A" * 43 + "=", request.body, request.headers) == 401
    late = {**request.headers, "webhook-timestamp": "1"}
    assert receive(world.secret, request.body, late) == 401
