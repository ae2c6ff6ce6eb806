"""What the charts of the overview and the bars above the list say: counts, waits, gaps, and where a bucket leads."""

from __future__ import annotations

import html
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from app.control.flow import FlowChart
from app.control.history import Sample
from app.control.overview import OverviewControl
from app.dashboard.activity import activity_of, range_of
from app.dashboard.charts import RANGES, charts_of
from app.dashboard.pages.jobs import _first
from app.dashboard.query import read_query, span
from app.domain.api_key import Identity, Scope
from app.domain.flow import FlowPart, FlowPoint, Tally
from app.domain.outcome import DeadLettered
from app.domain.state import DeadReason
from app.site import dashboard_services
from tests.dashboard.visitor import Visitor
from tests.http.api import failure
from tests.support.drivers import NAME, QUEUE
from tests.support.made import flow_of

NOW = datetime(2026, 11, 30, 14, 5, 30, tzinfo=UTC)
MANY = Tally(counts=(96, 3, 1, 2, 0, 0), waits=(0, 0, 0, 0, 100, *(0,) * 11))
_SERIES = re.compile(r'data-series="([^"]*)"')


def chart(tallies: dict[int, Tally]) -> FlowChart:
    """Give five minutes, the last of them the one that is now, with what was counted by its place."""
    began = NOW.replace(second=0) - timedelta(minutes=4)
    points = tuple(FlowPoint(began + timedelta(minutes=i), tallies.get(i, Tally())) for i in range(5))
    total = sum((point.tally for point in points), Tally())
    return FlowChart(began_at=began, bucket=timedelta(minutes=1), points=points, total=total, kinds=())


async def series(visitor: Visitor, query: str = "") -> dict[str, Any]:
    found = _SERIES.search(await visitor.see(f"/{query}"))
    assert found is not None
    read: dict[str, Any] = json.loads(html.unescape(found[1]))
    return read


def test_a_chart_has_counts_waits_and_gaps_that_are_no_zeros() -> None:
    drawn = charts_of(
        chart({1: MANY}),
        RANGES["1h"],
        history=(Sample(9_999, 5.0), Sample(190, 7.0), Sample(140, 3.0), Sample(130, 4.0)),
        oldest_now=12.0,
        workers=(),
        now=NOW,
    )
    assert drawn.series["ok"] == [0, 96, 0, 0, 0]
    assert drawn.series["failed"] == [0, 3, 0, 0, 0]
    assert drawn.series["p95"] == [None, 0.0975, None, None, None]
    assert drawn.series["oldest"] == [None, 7.0, 4.0, None, 12.0]
    outcomes, waits = drawn.figures
    assert "96 completed, 3 retried, 1 dead, 0 crashed, 2 interrupted, 0 lease lost" in outcomes.sentence
    assert [line.shown for line in waits.lines] == ["12 s", "98 ms"]
    assert [row.cells for row in waits.rows] == [("12 s", ""), ("", ""), ("4.0 s", ""), ("7.0 s", "98 ms"), ("", "")]
    assert outcomes.rows[3].q == "finished:2026-11-30T14:02:00Z until:2026-11-30T14:03:00Z"
    assert waits.rows[3].q == "created:2026-11-30T14:02:00Z before:2026-11-30T14:03:00Z"


@pytest.mark.parametrize(("query", "points"), [("", 60), ("?range=24h", 48), ("?range=7d", 56), ("?range=1y", 60)])
async def test_a_range_has_at_most_sixty_buckets(visitor: Visitor, query: str, points: int) -> None:
    await visitor.api.post()
    await visitor.env.driver.add_flow(flow_of(FlowPart(NAME, QUEUE, MANY)))
    found = await series(visitor, query)
    columns = ("at", "ok", "failed", "dead", "crashed", "interrupted", "lease_lost", "oldest", "p95")
    assert {len(found[name]) for name in columns} == {points}
    assert (sum(found["ok"]), found["ok"][-1]) == (96, 96)
    page = await visitor.see(f"/{query}")
    assert page.count("<tbody><tr>") == 2
    assert page.count('<th scope="row"><a href="/ui/jobs?q=finished%3A') == points


async def test_what_failed_in_a_day_is_counted_and_told_by_type(visitor: Visitor) -> None:
    await visitor.api.post()
    await visitor.api.finish(DeadLettered(error=failure("BROKEN"), reason=DeadReason.TERMINAL))
    parts = [FlowPart(NAME, QUEUE, MANY), FlowPart("fine.job", QUEUE, Tally(counts=(100, 0, 0, 9, 9, 9)))]
    await visitor.env.driver.add_flow(flow_of(*parts))
    page = re.sub(r"<[^>]+>", " ", (await visitor.see("/")).partition("<main")[2])
    said = " ".join(page.split())
    assert "failed 24 h 4 2.00 % of attempts" in said
    assert f"{NAME} BROKEN 4 4.00 % 1" in said
    assert "fine.job" not in said


async def test_what_fails_seldom_is_seen_beside_what_runs_often(visitor: Visitor) -> None:
    often = [FlowPart(f"often.job-{i}", QUEUE, Tally(counts=(100, 0, 0, 0, 0, 0))) for i in range(60)]
    await visitor.api.post()
    await visitor.env.driver.add_flow(flow_of(*often, FlowPart("seldom.job", QUEUE, Tally(counts=(0, 2, 0, 0, 0, 0)))))
    assert ">seldom.job</a>" in await visitor.see("/")


async def test_workers_of_a_new_version_are_marked(visitor: Visitor) -> None:
    await visitor.api.post()
    await visitor.env.register(code_version="9c1e0b7")
    assert "no attempt ended" in await visitor.see("/")
    ((at, version),) = (await series(visitor))["deploys"]
    assert version == "9c1e0b7"
    assert abs(at - visitor.env.now().timestamp()) < 60


async def test_a_queue_says_what_became_of_its_hour(visitor: Visitor) -> None:
    await visitor.api.post()
    await visitor.env.driver.add_flow(flow_of(FlowPart(NAME, QUEUE, MANY), FlowPart(NAME, "other", MANY)))
    page = await visitor.see(f"/queues/{QUEUE}")
    assert "102 attempts ended in the last hour, 4 failed; 95 of 100 jobs began within 98 ms." in page
    assert 'class="spark"' in page


def test_pages_count_with_what_else_of_the_process_counts(visitor: Visitor) -> None:
    overview = OverviewControl(visitor.env.driver)
    services = dashboard_services(visitor.env.driver, visitor.api.services, key=None, overview=overview)
    assert services.overview is overview


# --- above the list of jobs


def test_a_bar_says_how_much_and_leads_to_it() -> None:
    asked = read_query(["state:dead queue:mail created:24h"], NOW)
    drawn = activity_of(chart({1: MANY, 3: Tally(counts=(51, 0, 0, 0, 0, 0))}), RANGES["1h"], asked)
    assert drawn.words == "Attempts that ended, per minute, last hour, queue mail"
    assert [(bar.x, bar.height) for bar in drawn.bars] == [(0, 0), (20, 36), (40, 0), (60, 18), (80, 0)]
    assert drawn.bars[1].label == "14:02 to 14:03: 102 attempts ended, 4 failed"
    assert drawn.bars[1].q == "state:dead queue:mail finished:2026-11-30T14:02:00Z until:2026-11-30T14:03:00Z"
    again = activity_of(chart({}), RANGES["1h"], read_query([drawn.bars[1].q], NOW))
    assert [bar.is_asked for bar in again.bars] == [False, True, False, False, False]


@pytest.mark.parametrize(
    ("q", "window"), [("", "24h"), ("created:30m", "1h"), ("created:24h", "24h"), ("finished:3d", "7d")]
)
def test_bars_reach_as_far_as_the_search(q: str, window: str) -> None:
    assert range_of(read_query([q], NOW), NOW).window == window


async def test_bars_are_of_what_is_searched_and_of_nobody_elses(visitor: Visitor) -> None:
    await visitor.env.driver.add_flow(flow_of(FlowPart(NAME, QUEUE, MANY), FlowPart("b.job", "slow", MANY)))
    page = await visitor.see("/jobs")
    assert page.count('class="hit"') == 48
    assert "204 attempts ended, 8 failed" in page
    assert "102 attempts ended, 4 failed" in await visitor.see("/jobs?q=queue:slow")
    assert "102 attempts ended, 4 failed" in await visitor.see(f"/jobs?q=name:{NAME}")
    visitor.api.act_as(Identity(name="other", tenant="other", scopes=frozenset({Scope.JOBS_READ})))
    assert 'id="activity"' not in await visitor.see("/jobs")


async def test_what_ended_in_a_stretch_is_found(visitor: Visitor) -> None:
    ended = (await visitor.api.post())["id"]
    await visitor.api.finish()
    await visitor.api.post()
    at = visitor.env.now()
    minute = timedelta(minutes=1)
    page = await visitor.see(f"/jobs?q={span('finished', at - minute, 'until', at + minute)}")
    assert re.findall(r'id="job-([0-9a-f-]+)"', page) == [ended]
    assert 'value="matching"' not in page, "no operation knows when jobs ended"
    before = span("finished", at - 2 * minute, "until", at - minute)
    assert 'id="job-' not in await visitor.see(f"/jobs?q={before}")


def test_a_search_for_the_past_does_not_begin_at_the_newest() -> None:
    def made(at: datetime) -> UUID:
        return UUID(int=(round(at.timestamp() * 1_000) << 80) | 0x7 << 76 | 0x2 << 62)

    first = _first(read_query(["finished:25h until:24h"], NOW), NOW)
    assert first is not None
    until = NOW - timedelta(hours=24)
    assert made(until + timedelta(minutes=4, seconds=59)) < first, "made by a clock that is ahead"
    assert made(until + timedelta(minutes=5, seconds=1)) > first
    earlier = _first(read_query(["until:24h before:2d"], NOW), NOW)
    assert earlier is not None
    assert earlier < first
    for q in ("", "created:24h", "until:1m", "before:9999-12-31T23:59"):
        assert _first(read_query([q], NOW), NOW) is None
    assert _first(read_query(["before:0001-01-01"], NOW), NOW) == UUID(int=0)
