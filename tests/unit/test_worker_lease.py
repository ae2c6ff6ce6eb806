"""The lease as the worker judges it, and the watch over its loop, both on clocks that the test moves."""

from __future__ import annotations

import asyncio

import pytest

from app.domain.job import WorkerId
from app.observability.metrics import Metrics
from app.observability.probe import Probe
from app.observability.telemetry import Telemetry
from app.worker.lease import Lease, boot_clock
from app.worker.stall import StallWatch


class Hands:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_half_a_lease_without_a_renewal_stops_claims_and_a_whole_one_ends_it() -> None:
    hands = Hands()
    lease = Lease(worker_id=WorkerId(1), seconds=30, sent=hands.now, clock=hands)
    assert (lease.may_claim, lease.is_held) == (True, True)
    hands.now += 15
    assert (lease.may_claim, lease.is_held) == (False, True)
    hands.now += 15
    assert (lease.may_claim, lease.is_held) == (False, False)


def test_it_is_judged_from_the_instant_before_the_renewal_was_sent() -> None:
    hands = Hands()
    lease = Lease(worker_id=WorkerId(1), seconds=30, sent=hands.now, clock=hands)
    sent = hands.now + 10
    hands.now += 20
    lease.renewed(sent)
    assert lease.age == 10
    lease.renewed(sent - 5)
    assert lease.age == 10


def test_a_lease_that_is_over_stays_over_and_has_one_ender() -> None:
    hands = Hands()
    lease = Lease(worker_id=WorkerId(1), seconds=30, sent=hands.now, clock=hands)
    assert [lease.end(), lease.end()] == [True, False]
    lease.renewed(hands.now)
    assert (lease.may_claim, lease.is_held) == (False, False)


def test_a_lease_that_was_judged_over_is_not_held_again_for_a_renewal_that_was_under_way() -> None:
    hands = Hands()
    lease = Lease(worker_id=WorkerId(1), seconds=30, sent=hands.now, clock=hands)
    sent = hands.now + 20
    hands.now += 30
    assert not lease.is_held
    lease.renewed(sent)
    assert (lease.may_claim, lease.is_held) == (False, False)
    assert [lease.end(), lease.end()] == [True, False]


def test_a_renewal_answered_after_a_lease_that_nobody_has_looked_at_still_extends_it() -> None:
    hands = Hands()
    lease = Lease(worker_id=WorkerId(1), seconds=30, sent=hands.now, clock=hands)
    sent = hands.now + 20
    hands.now += 31
    lease.renewed(sent)
    assert lease.is_held


def test_after_half_a_lease_without_a_renewal_others_get_one_to_renew_before_they_are_reaped() -> None:
    hands = Hands()
    lease = Lease(worker_id=WorkerId(1), seconds=30, sent=hands.now, clock=hands)
    said = [lease.may_reap]
    hands.now += 15
    said.append(lease.may_reap)
    renewed(lease, hands, at=hands.now, until=hands.now + 29)
    said.append(lease.may_reap)
    renewed(lease, hands, at=hands.now + 1, until=hands.now + 1)
    said.append(lease.may_reap)
    assert said == [True, False, False, True]


def test_renewals_that_land_in_time_hold_no_reaper_back() -> None:
    hands = Hands()
    lease = Lease(worker_id=WorkerId(1), seconds=30, sent=hands.now, clock=hands)
    hands.now += 14
    lease.renewed(hands.now)
    assert lease.may_reap


def test_renewals_that_are_always_late_hold_the_reaper_back_for_three_leases_and_again_once_they_were_not() -> None:
    hands = Hands()
    lease = Lease(worker_id=WorkerId(1), seconds=30, sent=hands.now, clock=hands)
    reaps = []
    for _ in range(10):  # the first lands at 20
        hands.now += 20
        lease.renewed(hands.now)
        reaps.append(lease.may_reap)
    assert reaps == [False] * 5 + [True] * 5
    renewed(lease, hands, at=hands.now + 10, until=hands.now + 70)
    hands.now += 20
    lease.renewed(hands.now)
    assert not lease.may_reap


def renewed(lease: Lease, hands: Hands, *, at: float, until: float) -> None:
    """Renew, as a heartbeat does, from one instant to another."""
    hands.now = at
    while hands.now <= until:
        lease.renewed(hands.now)
        hands.now += 5
    hands.now = until
    lease.renewed(until)


def test_the_boot_clock_moves() -> None:
    clock = boot_clock()
    first = clock()
    assert first > 0
    assert clock() >= first


def watch(limit: float = 5.0) -> tuple[StallWatch, Hands, Probe, Metrics]:
    hands, metrics = Hands(), Metrics()
    telemetry = Telemetry(metrics=metrics)
    stall = StallWatch(limit_seconds=limit, telemetry=telemetry, monotonic=hands, on_blocked=lambda _task: None)
    return stall, hands, Probe(telemetry), metrics


async def test_a_loop_that_hangs_is_said_once_then_beyond_help() -> None:
    stall, hands, probe, metrics = watch()
    looks = []
    for _ in range(24):
        hands.now += 0.25
        looks.append(stall.look())
    assert looks.index(False) == 20
    blocked = probe.of("worker.loop_blocked", is_over=False)
    assert "test_a_loop_that_hangs" in str(blocked[0].facts["blocked_at"])
    assert metrics.registry.get_sample_value("outlast_loop_lag_seconds") == pytest.approx(5.65, abs=0.2)


async def test_a_loop_that_moves_again_is_said_and_forgiven() -> None:
    stall, hands, probe, _ = watch()
    over = asyncio.Event()
    for _ in range(8):
        hands.now += 0.25
        assert stall.look()
    over.set()
    stall._beats += 1
    hands.now += 0.25
    assert stall.look()
    (end,) = probe.of("worker.loop_blocked", is_over=True)
    assert end.facts["seconds"] == pytest.approx(1.75)
    hands.now += 0.25
    assert stall.look()
    assert len(probe.of("worker.loop_blocked")) == 2


async def test_a_process_that_was_suspended_is_not_taken_for_one_that_hangs() -> None:
    stall, hands, probe, _ = watch()
    assert stall.look()
    hands.now += 3600
    assert stall.look()
    stall._beats += 1
    assert stall.look()
    assert not probe.of("worker.loop_blocked", is_over=False) or stall._stalled == 0
