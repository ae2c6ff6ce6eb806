"""`GET /v1/stats`: what attempts came to, in points that a chart draws as they are."""

from __future__ import annotations

from typing import Any

import pytest

from app.control.flow import FlowControl
from app.domain.flow import FlowPart, Tally
from app.http.answers_stats import ServiceStats
from tests.http.api import Api, code_of
from tests.support.made import flow_of

MANY = Tally(counts=(8, 1, 1, 2, 0, 0), waits=(10, *(0,) * 15), runs=(*(0,) * 4, 10, *(0,) * 12))


async def _stats(api: Api, query: str = "") -> dict[str, Any]:
    response = await api.client.get(f"/v1/stats{query}")
    assert response.status_code == 200, response.text
    ServiceStats.model_validate(response.json())
    found: dict[str, Any] = response.json()
    return found


@pytest.mark.parametrize(
    ("query", "points", "bucket_ms"),
    [("", 60, 60_000), ("?window=1h&bucket=5m", 12, 300_000), ("?window=24h", 96, 900_000),
     ("?window=24h&bucket=6h", 4, 21_600_000), ("?window=7d", 168, 3_600_000), ("?window=7d&bucket=1d", 7, 86_400_000)],
)  # fmt: skip
async def test_a_chart_has_a_point_for_every_bucket(each_api: Api, query: str, points: int, bucket_ms: int) -> None:
    await each_api.env.driver.add_flow(
        flow_of(FlowPart("demo.job", "mail", MANY), FlowPart("other.job", "mail", Tally()))
    )
    found = await _stats(each_api, query)
    series = found["series"]
    assert {len(column) for column in series.values()} == {points}
    assert found["bucket_ms"] == bucket_ms
    assert (series["at"][0], series["at"] == sorted(series["at"])) == (found["began_at"], True)
    assert found["total"] | {"ok": 8, "failed": 1, "dead": 1, "interrupted": 2, "failure_ratio": 0.2} == found["total"]
    assert (sum(series["ok"]), sum(series["interrupted"])) == (8, 2)
    assert [each for each in series["wait_p95_ms"] if each is not None] == [4.8]
    assert found["total"]["duration_p95_ms"] == 97.5
    assert found["job_types"][0] == {"name": "demo.job", **found["total"]}


async def test_a_chart_is_of_one_job_type_or_queue_on_demand(each_api: Api) -> None:
    await each_api.env.driver.add_flow(flow_of(FlowPart("a.job", "mail", MANY), FlowPart("b.job", "slow", MANY)))
    assert (await _stats(each_api))["total"]["ok"] == 16
    for query in ("?name=a.job", "?queue=mail"):
        found = await _stats(each_api, query)
        assert ([kind["name"] for kind in found["job_types"]], found["total"]["ok"]) == (["a.job"], 8)
    empty = await _stats(each_api, "?name=c.job")
    assert (empty["job_types"], empty["total"]["failure_ratio"]) == ([], None)


@pytest.mark.parametrize("query", ["window=2h", "bucket=2m", "window=24h&bucket=1m", "window=1h&bucket=1h", "x=1"])
async def test_a_chart_that_there_is_not_is_refused_with_those_there_are(api: Api, query: str) -> None:
    refused = await api.client.get(f"/v1/stats?{query}")
    assert code_of(refused) == (422, "REQUEST_INVALID")
    assert refused.json()["errors"][0]["pointer"] in {"/window", "/bucket", "/x"}


async def test_a_chart_is_read_once_for_all_who_ask_at_once(api: Api) -> None:
    now = 0.0
    control = FlowControl(api.env.driver, monotonic=lambda: now)
    first = await control.chart()
    await api.env.driver.add_flow(flow_of(FlowPart("demo.job", "mail", MANY)))
    assert await control.chart() is first
    now = 5.1
    chart, bare = await control.chart(), await control.chart(with_kinds=False)
    assert chart.total == bare.total == MANY
    assert ([kind.name for kind in chart.kinds], bare.kinds) == (["demo.job"], ())
