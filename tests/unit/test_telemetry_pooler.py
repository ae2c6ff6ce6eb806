"""What a process says of a pooler in front of its store."""

from __future__ import annotations

import pytest

from app.observability.metrics import Metrics
from app.observability.probe import Probe
from app.observability.telemetry import Telemetry


@pytest.mark.parametrize(
    ("can_listen", "missing", "fix"),
    [(True, (), None), (False, (), "OUTLAST_LISTEN_URL"), (True, ("jit",), "use-a-pooler.md")],
)
def test_a_pooler_is_said_with_what_it_costs(*, can_listen: bool, missing: tuple[str, ...], fix: str | None) -> None:
    telemetry = Telemetry(metrics=Metrics())
    probe = Probe(telemetry)
    telemetry.store_is_pooled(can_listen=can_listen, keeps_statements=True, missing=missing)
    (said,) = probe.of("store.pooled")
    assert said.facts["missing"] == list(missing)
    assert said.facts["wakeup"] == ("listen" if can_listen else "polling")
    assert said.facts["prepared_statements"] == "on"
    assert (fix in str(said.facts["fix"])) if fix else ("fix" not in said.facts)
