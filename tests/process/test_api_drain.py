"""An API leaves in time whatever its clients do, and has given nothing up by that."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import pytest

from tests.support.processes import DRAIN, Fleet

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(60)]

STALLED = b"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"


async def test_a_client_that_stalls_in_its_body_does_not_make_the_drain_unclean(fleet: Fleet) -> None:
    api = await fleet.api().ready()
    address = urlsplit(api.api)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=10) as client:
        client.sendall(STALLED)
        client.setblocking(False)
        api.terminate()
        assert await api.gone(DRAIN + 2) == 0
