"""A replication slot that nobody reads keeps dead rows from vacuum: it is named as their holder, and claims stay fast.

A session that stays is in `test_oldest_snapshot` and `test_pinned_snapshot`; here `make soak` has half an hour of both.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from statistics import quantiles
from typing import Any

import pytest

from app.control.doctor.finding import Level, Limits
from app.domain.job import WorkerId
from app.domain.snapshot import OldestSnapshot
from app.observability.metrics import Metrics
from tests.doctor.clinic import Clinic
from tests.postgres.arena import Arena
from tests.postgres.meter import Meter
from tests.postgres.pages import ROOM, administrator, warm_meter
from tests.support.made import new_job
from tests.support.standby import NAME, slot, slot_that_is_read

pytestmark = [pytest.mark.postgres]

Record = Callable[[str, object], None]

Holder = Callable[[str], AbstractAsyncContextManager[None]]

SLOT = "a_standby"
_SAMPLE = 250
_ROUNDS = 1_000
_BATCH = 500


def held_by_a_slot(url: str) -> AbstractAsyncContextManager[None]:
    """Have a slot keep what is there now."""
    return slot(url, SLOT)


@asynccontextmanager
async def held_by_a_reader(url: str) -> AsyncIterator[None]:
    """Have a session keep its snapshot."""
    async with administrator(url) as reader, reader.transaction(isolation="repeatable_read"):
        await reader.fetchval("select count(*) from outlast.job")
        yield


async def test_a_slot_is_named_as_the_holder_until_it_is_dropped(lone_arena: Arena, lone_url: str) -> None:
    clinic = Clinic(lone_url)
    clinic.limits = Limits(holder_xids=5)
    await clinic.well("old_snapshots")
    async with held_by_a_slot(lone_url):
        for _ in range(6):
            await lone_arena.enqueue()
        await lone_arena.driver.cancel((await lone_arena.driver.enqueue(new_job())).id, reason="dead rows")
        stats = await lone_arena.driver.stats()
        metrics = Metrics()
        metrics.show(stats)
        assert stats.oldest_snapshot is not None
        assert metrics.registry.get_sample_value("outlast_oldest_xmin_age") == stats.oldest_snapshot.xids >= 6
        finding = await clinic.sick("old_snapshots", Level.WARN)
        assert f"the replication slot '{SLOT}'" in finding.text
        holder: Any = finding.facts["holders"][0]  # type: ignore[index]
        assert (holder["kind"], holder["name"], holder["application"], holder["age_ms"]) == ("slot", SLOT, None, None)
        assert finding.commands == (f"select pg_drop_replication_slot('{SLOT}')",)
        assert await _dead_after_vacuum(lone_arena) > 0
        await clinic.mend(finding)
        await clinic.well("old_snapshots")
        assert (await lone_arena.driver.stats()).oldest_snapshot == OldestSnapshot(seconds=0, xids=0)
        assert await _dead_after_vacuum(lone_arena) == 0


async def test_a_slot_whose_standby_is_there_is_not_to_be_dropped(lone_arena: Arena, lone_url: str) -> None:
    clinic = Clinic(lone_url)
    clinic.limits = Limits(holder_xids=5)
    async with slot_that_is_read(lone_url, SLOT):
        for _ in range(6):
            await lone_arena.enqueue()
        finding = await clinic.sick("old_snapshots", Level.WARN)
        assert f"the replication slot '{SLOT}' of {NAME}" in finding.text
        assert "hot_standby_feedback" in (finding.fix or "")
        assert finding.commands == ()
    await clinic.well("old_snapshots")


async def _dead_after_vacuum(arena: Arena) -> int:
    await arena.execute("vacuum outlast.gate, outlast.ready")
    (row,) = await arena.fetch(
        "select sum(n_dead_tup)::int as dead from pg_stat_all_tables where relid = 'outlast.ready'::regclass"
    )
    return int(row["dead"])


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("holder", [held_by_a_slot, held_by_a_reader])
async def test_the_slowest_claims_stay_as_fast_for_half_an_hour(
    lone_url: str, holder: Holder, record_property: Record
) -> None:
    record_property("claims", await claims_stay_fast(lone_url, holder, lasts=timedelta(minutes=30)))


async def claims_stay_fast(url: str, holder: Holder, *, lasts: timedelta) -> str:
    """Let half a million jobs come and go behind a snapshot; gives how long the slowest claims took, and before."""
    lease = 2 * lasts + timedelta(minutes=10)  # which nobody renews here
    every = lasts / _ROUNDS
    async with warm_meter(url, lease=lease) as (meter, worker), administrator(url) as admin:
        await _claims(meter, worker, 50)
        await admin.execute("vacuum (analyze)")
        fresh = await _claims(meter, worker, _SAMPLE, every=every)
        await admin.execute("vacuum (analyze)")
        last = fresh
        async with holder(url):
            for _ in range(_ROUNDS // _SAMPLE):
                last = await _claims(meter, worker, _SAMPLE, every=every)
                await admin.execute("vacuum (analyze)")  # as autovacuum does, for nothing
            await admin.execute("vacuum outlast.ready")  # which counts them all, where analyze takes a sample
            dead = await admin.fetchval(
                "select n_dead_tup from pg_stat_all_tables where relid = 'outlast.ready'::regclass"
            )
    jobs = _ROUNDS // _SAMPLE * _SAMPLE * _BATCH
    assert dead >= jobs * 0.9, "what holds the snapshot keeps them"
    middle, before = _milliseconds(fresh)
    middle_after, after = _milliseconds(last)
    said = f"{jobs:,} jobs behind a snapshot: of a hundred claims of {ROOM} the slowest takes {before:.1f} ms on fresh"
    said += f" tables, {after:.1f} ms at last; the middle one {middle:.1f} and {middle_after:.1f} ms"
    print(said)  # noqa: T201 - for who looks
    assert after <= 3 * before, said
    assert middle_after <= 3 * middle, said
    return said


def _waited(*processes: object) -> float:
    """Give for how many seconds processes have been ready to run, and did not: the second figure of the kernel's."""
    return sum(int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) for process in processes) / 1e9


def _milliseconds(took: list[float]) -> tuple[float, float]:
    """Give the middle claim and the slowest of a hundred."""
    hundredths = quantiles(took, n=100)
    return hundredths[49] * 1e3, hundredths[-1] * 1e3


async def _claims(meter: Meter, worker: WorkerId, rounds: int, *, every: timedelta = timedelta()) -> list[float]:
    """Let jobs come, be claimed and end, batch by batch; gives the seconds that the first claim of each took.

    For how long its two processes waited for a processor is left out: what else a machine does, over half an hour, is
    longer than any claim.
    """
    took, clock = [], time.perf_counter
    server = await meter.driver._db.run(lambda conn: conn.fetchval("select pg_backend_pid()"))
    began = clock()
    for number in range(rounds):
        await asyncio.sleep(max(began + number * every.total_seconds() - clock(), 0))
        await meter.enqueue(_BATCH)
        at, waited = clock(), _waited("self", server)
        held = await meter.claim(worker, ROOM)
        took.append(clock() - at - (_waited("self", server) - waited))
        ended = len(held)
        while held:
            held = await meter.finish_and_claim(held, worker, ROOM)
            ended += len(held)
        assert ended == _BATCH, "every job has come and gone: a claim that is refused takes no time"
    return took
