"""Counts of attempts over time: added up in stretches of three lengths, and forgotten when no chart reaches them."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from app.domain.flow import TIERS, FlowPart, FlowQuery, FlowTier, Tally
from tests.support.drivers import DriverEnv
from tests.support.made import flow_of

OK, DEAD = Tally(counts=(1, 0, 0, 0, 0, 0)), Tally(counts=(0, 0, 1, 0, 0, 0))
SLOW = Tally(waits=(0,) * 15 + (2,), runs=(0,) * 16 + (3,))
YEAR = timedelta(days=365)


def _begin(at: datetime, tier: FlowTier) -> datetime:
    return datetime.fromtimestamp(at.timestamp() // tier.number * tier.number, tz=at.tzinfo)


async def test_a_batch_is_counted_once_however_often_it_is_added(env: DriverEnv) -> None:
    batches = [flow_of(FlowPart("a.job", "mail", OK)), flow_of(FlowPart("a.job", "mail", DEAD))]
    for batch in (*batches, *batches, batches[0]):
        await env.driver.add_flow(batch)
    points = await env.driver.flow(FlowQuery(tier=TIERS[2], since=env.now() - YEAR))
    assert sum((point.tally for point in points), Tally()) == OK + DEAD


async def test_counts_add_up_in_every_length_of_stretch(env: DriverEnv) -> None:
    start = env.now()
    parts = [FlowPart("a.job", "mail", OK), FlowPart("a.job", "slow", SLOW), FlowPart("b.job", "mail", DEAD)]
    await env.driver.add_flow(flow_of(*parts))
    await env.driver.add_flow(flow_of(*parts[:1]))
    whole = Tally(counts=(2, 0, 1, 0, 0, 0)) + SLOW
    for tier in TIERS:
        points = await env.driver.flow(FlowQuery(tier=tier, since=start - YEAR))
        assert sum((point.tally for point in points), Tally()) == whole
        assert {point.at for point in points} <= {_begin(start, tier), _begin(env.now(), tier)}
    query = FlowQuery(tier=TIERS[0], since=start - YEAR)
    assert [(kind.name, kind.tally) for kind in await env.driver.flow_kinds(query)] == [
        ("a.job", Tally(counts=(2, 0, 0, 0, 0, 0)) + SLOW),
        ("b.job", DEAD),
    ]


async def test_a_chart_is_of_one_job_type_or_queue_on_demand(env: DriverEnv) -> None:
    since = env.now() - YEAR
    await env.driver.add_flow(flow_of(FlowPart("a.job", "mail", OK), FlowPart("b.job", "slow", DEAD)))
    for query in (
        FlowQuery(tier=TIERS[1], since=since, name="b.job"),
        FlowQuery(tier=TIERS[1], since=since, queue="slow"),
    ):
        assert [point.tally for point in await env.driver.flow(query)] == [DEAD]
        assert [kind.name for kind in await env.driver.flow_kinds(query)] == ["b.job"]
    nothing = FlowQuery(tier=TIERS[1], since=since, name="a.job", queue="slow")
    assert await env.driver.flow(nothing) == ()
    later = FlowQuery(tier=TIERS[1], since=env.now() + timedelta(hours=1))
    assert await env.driver.flow_kinds(later) == ()


async def test_stretches_that_no_chart_reaches_are_forgotten(env: DriverEnv) -> None:
    since = env.now() - YEAR
    await env.driver.add_flow(flow_of(FlowPart("a.job", "mail", OK)))
    for tier in TIERS:
        await env.advance(tier.kept + tier.length)
        await env.driver.add_flow(flow_of(FlowPart("a.job", "mail", DEAD)))
        points = await env.driver.flow(FlowQuery(tier=tier, since=since))
        assert [point.tally.counts[0] for point in points] == [0]


async def test_workers_that_add_at_once_lose_nothing(env: DriverEnv) -> None:
    parts = [FlowPart(f"{name}.job", "mail", OK) for name in "abc"]
    await asyncio.gather(*(env.driver.add_flow(flow_of(*(parts if turn % 2 else parts[::-1]))) for turn in range(10)))
    points = await env.driver.flow(FlowQuery(tier=TIERS[2], since=env.now() - YEAR))
    assert sum((point.tally for point in points), Tally()).counts[0] == 30
