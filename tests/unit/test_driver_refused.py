from __future__ import annotations

import inspect

import pytest

from app.domain.errors import NotImplementedYet
from app.drivers.protocol import JobDriver
from app.drivers.refused import REFUSED_SCHEMES, RefusedDriver

VERBS = sorted(name for name, member in inspect.getmembers(JobDriver, inspect.isfunction) if not name.startswith("_"))


@pytest.mark.parametrize("scheme", sorted(REFUSED_SCHEMES))
@pytest.mark.parametrize("verb", VERBS)
async def test_every_method_refuses_with_a_repair(scheme: str, verb: str) -> None:
    method = getattr(RefusedDriver(scheme), verb)

    async def call() -> None:
        signature = inspect.signature(method)
        named = {each.name: None for each in signature.parameters.values()}
        await method(**named)

    with pytest.raises(NotImplementedYet) as refused:
        await call()
    assert f"{scheme}://" in refused.value.cause
    assert "OUTLAST_DATABASE_URL" in refused.value.fix


def test_the_verbs_are_those_of_the_protocol() -> None:
    assert {"open", "enqueue", "claim", "settle", "listen", "open_heartbeat"} <= set(VERBS)


def test_nothing_is_promised_to_be_kept() -> None:
    capabilities = RefusedDriver("redis").capabilities
    assert (capabilities.name, capabilities.is_durable) == ("redis", False)
