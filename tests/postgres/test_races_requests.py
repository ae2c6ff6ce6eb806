"""Tries of one request against each other: of any number, one commits, and its mark says so to the others."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from app.domain.audit import Action
from app.domain.errors import IdempotencyInFlight
from app.domain.request_claim import REQUEST_LEASE, KeptAnswer, NewRequest, RequestClaim, RequestId, jobs_of
from app.domain.retention import Chore, Retention
from tests.postgres.arena import Arena
from tests.support.audit import an_entry, outcomes
from tests.support.drivers import new_job

pytestmark = pytest.mark.postgres

ANSWER = KeptAnswer(status=201, headers={"ETag": "a"}, body="{}")


def a_request() -> NewRequest:
    """Give a request that nobody has sent before."""
    return NewRequest(id=RequestId(uuid4()), holder=uuid4(), fingerprint=uuid4())


def again(request: NewRequest) -> NewRequest:
    """Give another try of a request."""
    return replace(request, holder=uuid4())


async def _claimed(driver: Any, request: NewRequest) -> RequestClaim:
    claim = await driver.claim_request(request)
    assert isinstance(claim, RequestClaim)
    return claim


async def test_of_fifty_tries_at_once_one_is_given_the_claim(arena: Arena) -> None:
    request = a_request()
    gate = asyncio.Barrier(50)

    async def attempt() -> Any:
        await gate.wait()
        try:
            claim = await _claimed(arena.driver, again(request))
        except IdempotencyInFlight:
            return None
        if claim.effect is not None:
            return jobs_of(claim.effect)[0].id
        return (await arena.driver.enqueue_once((new_job(),), claim))[0].id

    made = {each for each in await asyncio.gather(*(attempt() for _ in range(50))) if each is not None}
    assert len(made) == 1
    assert (await arena.fetch("select count(*) as n from outlast.job"))[0]["n"] == 1


async def test_a_try_behind_a_claim_waits_and_is_told_that_it_is_being_done(arena: Arena) -> None:
    request = a_request()
    async with arena.holding() as first:
        await _claimed(first.driver, request)
        second = await arena.start(lambda seat: seat.driver.claim_request(again(request)))
        await second.is_blocked_by(first)
        await first.commit()
    with pytest.raises(IdempotencyInFlight):
        await second.result()


async def test_a_try_behind_a_claim_that_rolls_back_gets_it(arena: Arena) -> None:
    request = a_request()
    async with arena.holding() as first:
        await _claimed(first.driver, request)
        second = await arena.start(lambda seat: seat.driver.claim_request(again(request)))
        await second.is_blocked_by(first)
        await first.rollback()
    assert isinstance(await second.result(), RequestClaim)


async def test_an_effect_whose_claim_was_taken_over_is_undone(arena: Arena) -> None:
    request = a_request()
    late = await _claimed(arena.driver, request)
    await arena.advance(REQUEST_LEASE)
    prompt = await _claimed(arena.driver, again(request))
    (answer,) = await arena.driver.enqueue_once((new_job(),), prompt)
    with pytest.raises(IdempotencyInFlight):
        await arena.driver.enqueue_once((new_job(),), late)
    job_id = await arena.enqueue()
    with pytest.raises(IdempotencyInFlight):
        await arena.driver.cancel(job_id, reason="stop", audit=an_entry(Action.JOB_CANCEL, job_id, request=late))
    assert await arena.bucket(job_id) == "ready"
    assert await outcomes(arena.driver, job_id) == []
    assert {row["id"] for row in await arena.fetch("select id from outlast.job")} == {answer.id, job_id}


async def test_a_try_behind_an_effect_waits_and_finds_it(arena: Arena) -> None:
    request = a_request()
    claim = await _claimed(arena.driver, request)
    await arena.advance(REQUEST_LEASE)
    async with arena.holding() as first:
        (answer,) = await first.driver.enqueue_once((new_job(),), claim)
        second = await arena.start(lambda seat: seat.driver.claim_request(again(request)))
        await second.is_blocked_by(first)
        await first.commit()
    found = await second.result()
    assert isinstance(found, RequestClaim)
    assert found.effect is not None
    assert jobs_of(found.effect) == (answer,)


async def test_an_effect_behind_a_takeover_waits_and_is_undone(arena: Arena) -> None:
    request = a_request()
    late = await _claimed(arena.driver, request)
    await arena.advance(REQUEST_LEASE)
    async with arena.holding() as first:
        await _claimed(first.driver, again(request))
        second = await arena.start(lambda seat: seat.driver.enqueue_once((new_job(),), late))
        await second.is_blocked_by(first)
        await first.commit()
    with pytest.raises(IdempotencyInFlight):
        await second.result()
    assert await arena.fetch("select id from outlast.job") == []


async def test_a_release_behind_an_effect_leaves_it(arena: Arena) -> None:
    request = a_request()
    claim = await _claimed(arena.driver, request)
    async with arena.holding() as first:
        await first.driver.enqueue_once((new_job(),), claim)
        second = await arena.start(lambda seat: seat.driver.release_request(claim))
        await second.is_blocked_by(first)
        await first.commit()
    await second.result()
    assert (await _claimed(arena.driver, again(request))).effect is not None


async def test_the_first_answer_stands(arena: Arena) -> None:
    request = a_request()
    claim = await _claimed(arena.driver, request)
    await arena.driver.enqueue_once((new_job(),), claim)
    other = await _claimed(arena.driver, again(request))
    await arena.driver.answer_request(claim, ANSWER)
    await arena.driver.answer_request(other, replace(ANSWER, body="[]"))
    assert await arena.driver.claim_request(again(request)) == ANSWER


async def test_old_requests_are_purged_and_young_ones_stay(arena: Arena) -> None:
    await _claimed(arena.driver, a_request())
    await arena.advance(timedelta(hours=23))
    young = a_request()
    await _claimed(arena.driver, young)
    await arena.advance(timedelta(hours=2))
    assert (await arena.driver.tidy(Chore.REQUESTS, Retention(), now=True)).deleted == 1
    assert [row["id"] for row in await arena.fetch("select id from outlast.request")] == [young.id]
