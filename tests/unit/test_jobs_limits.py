"""Keys of limits: made at enqueue, from templates in any process, by functions where their code is loaded."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import BaseModel

from app.domain.errors import JobUnknown, PayloadInvalid, SettingsInvalid
from app.domain.job import LimitKey
from app.domain.limit import Bucket, LimitRule, limit_hash, rules_of
from app.jobs.admission import Admission, EnqueueRequest
from app.jobs.describe import document_text
from app.jobs.handle import job
from app.jobs.jobtype import JobType
from app.jobs.limits import Limit, Rate

MINUTE = timedelta(minutes=1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Mail(BaseModel):
    shop: str
    to: str = "nobody"


def shard(payload: Mail) -> str:
    return str(len(payload.shop))


@job(
    "mail.send",
    limits=[Limit(2), Limit(4, key="{shop}:{to}", name="per-shop")],
    rate=Rate(100, per=MINUTE, key="{shop}"),
)
async def send(payload: Mail) -> None: ...


@job("mail.shard", limits=[Limit(1, key=shard, name="tenant")])
async def sharded(payload: Mail) -> None: ...


def admitted(job_type: JobType, payload: object) -> tuple[LimitKey, ...]:
    return Admission().admit(job_type, EnqueueRequest(name=job_type.name, payload_text=json.dumps(payload))).limits


@pytest.mark.parametrize("job_type", [JobType.of_handle(send), JobType.parse(document_text(send))])
def test_keys_are_made_alike_where_the_code_is_loaded_and_where_it_is_not(job_type: JobType) -> None:
    made = admitted(job_type, {"shop": "acme"})
    assert made == (("limit", ""), ("per-shop", "acme:nobody"), ("rate", "acme"))


def test_a_function_makes_keys_only_where_it_is_loaded() -> None:
    assert admitted(JobType.of_handle(sharded), {"shop": "acme"}) == (("tenant", "4"),)
    with pytest.raises(JobUnknown) as caught:
        admitted(JobType.parse(document_text(sharded)), {"shop": "acme"})
    assert "tenant" in caught.value.cause


@pytest.mark.parametrize("payload", [{}, {"shop": None}, {"shop": ""}, {"shop": "x" * 300}, {"shop": "a\tb"}])
def test_a_payload_that_makes_no_key_is_refused(payload: object) -> None:
    @job("mail.bare", limits=[Limit(1, key="{shop}")])
    async def bare(shop: str | None = None) -> None: ...

    with pytest.raises(PayloadInvalid):
        admitted(JobType.of_handle(bare), payload)


def test_a_template_that_names_no_field_stops_the_start() -> None:
    @job("mail.wrong", limits=[Limit(1, key="{nothing}")])
    async def wrong(payload: Mail) -> None: ...

    with pytest.raises(SettingsInvalid):
        JobType.of_handle(wrong)


def test_a_document_says_how_many() -> None:
    assert rules_of(document_text(send)) == (
        LimitRule(limit="limit", n=2),
        LimitRule(limit="per-shop", n=4),
        LimitRule(limit="rate", n=100, per=MINUTE),
    )
    assert rules_of("{}") == ()
    with pytest.raises(SettingsInvalid):
        rules_of('{"policy": {"limits": [{}]}}')


def test_a_document_of_an_earlier_release_has_no_limits() -> None:
    document = json.loads(document_text(send))
    del document["policy"]["limits"], document["policy"]["rate"]
    assert admitted(JobType.parse(json.dumps(document)), {"shop": "acme"}) == ()


def test_no_two_keys_glue_to_one() -> None:
    pairs = [("a", LimitKey("bc", "d")), ("ab", LimitKey("c", "d")), ("a", LimitKey("b", "cd"))]
    assert len({limit_hash(name, limit) for name, limit in pairs}) == 3


def test_a_bucket_fills_evenly_and_never_over() -> None:
    rule = LimitRule(limit="rate", n=2, per=MINUTE)
    bucket = Bucket(2.0, NOW)
    assert bucket.takes().takes().has_one is False
    empty = bucket.takes().takes()
    assert empty.next_at(rule) == NOW + timedelta(seconds=30)
    assert empty.filled(rule, NOW + timedelta(seconds=30)).has_one
    assert not empty.filled(rule, NOW + timedelta(seconds=29)).has_one
    assert empty.filled(rule, NOW + timedelta(hours=1)).tokens == 2.0
    assert empty.filled(rule, NOW - timedelta(hours=1)) == Bucket(0.0, NOW)
