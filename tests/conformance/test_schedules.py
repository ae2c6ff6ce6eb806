"""Schedules in a store: what stands, what is decided once, what an operator does. Once per driver."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from app.domain.errors import JobDuplicate, NotFound
from app.domain.job import NewJob
from app.domain.outcome import Completed
from app.domain.schedule import (
    DECLARATION_KEPT,
    OCCURRENCES_KEPT,
    Declaration,
    OccurrenceOutcome,
    Overlap,
    Plan,
    Planned,
    ScheduleView,
)
from app.domain.state import State
from app.drivers.schedules import ScheduleStore, schedules_of
from tests.support.drivers import DriverEnv, new_job

NIGHTLY = "nightly"
MINUTE = timedelta(minutes=1)
FIRED, SKIPPED = OccurrenceOutcome.FIRED, OccurrenceOutcome.SKIPPED


def store_of(env: DriverEnv) -> ScheduleStore:
    store = schedules_of(env.driver)
    assert store is not None
    return store


def declared(name: str = NIGHTLY, *, version: str = "1", cron: str = "* * * * *", tz: str = "UTC") -> Declaration:
    return Declaration(name=name, code_version=version, cron=cron, tz=tz, document=f'{{"version":"{version}"}}')


def plan(
    *planned: Planned,
    of: Declaration | None = None,
    until: datetime,
    overlap: Overlap = Overlap.ALLOW,
    is_paused: bool = False,
) -> Plan:
    digest = (of or declared()).digest
    return Plan(name=NIGHTLY, digest=digest, until=until, planned=tuple(planned), overlap=overlap, is_paused=is_paused)


def firing(*ats: datetime, **fields: Any) -> list[Planned]:
    return [Planned(at=at, job=new_job(**fields)) for at in ats]


def jobs(planned: Sequence[Planned]) -> list[NewJob]:
    return [each.job for each in planned if each.job is not None]


async def found(env: DriverEnv, name: str = NIGHTLY) -> ScheduleView:
    view = await store_of(env).find(name)
    assert view is not None
    return view


async def test_a_new_schedule_begins_now(env: DriverEnv) -> None:
    store = store_of(env)
    await store.declare([declared()])

    view = await found(env)

    assert (view.cron, view.tz, view.code_version) == ("* * * * *", "UTC", "1")
    assert view.watermark == view.published_at == view.seen_at == env.now()
    standings = await store.standings([NIGHTLY, "other"])
    assert standings.now == env.now() == await store.now()
    assert standings.by_name[NIGHTLY].digest == declared().digest
    assert "other" not in standings.by_name


async def test_an_occurrence_fires_once_and_its_job_is_there_in_the_same_commit(env: DriverEnv) -> None:
    store, at = store_of(env), env.now()
    await store.declare([declared()])
    planned = firing(at, at + MINUTE)

    decided = await store.decide(plan(*planned, until=at + MINUTE))
    again = await store.decide(plan(*firing(at, at + MINUTE), until=at + MINUTE))

    assert decided is not None
    assert [(one.at, one.outcome, one.job_id) for one in decided] == [
        (each.at, FIRED, job.id) for each, job in zip(planned, jobs(planned), strict=True)
    ]
    assert again == ()
    assert [(await env.describe(job.id)).state for job in jobs(planned)] == [State.READY, State.READY]
    view = await found(env)
    assert [row.at for row in view.occurrences] == [at + MINUTE, at]
    assert view.watermark == at + MINUTE
    assert (await env.driver.stats()).by_state[State.READY] == 2


async def test_what_is_skipped_keeps_a_row_with_the_reason(env: DriverEnv) -> None:
    store, at = store_of(env), env.now()
    await store.declare([declared()])
    await store.decide(plan(Planned(at=at, why="catch_up"), *firing(at + MINUTE), until=at + MINUTE))

    rows = (await found(env)).occurrences

    assert [(row.at, row.outcome, row.why) for row in rows] == [(at + MINUTE, FIRED, None), (at, SKIPPED, "catch_up")]


async def test_the_watermark_never_goes_back(env: DriverEnv) -> None:
    store, at = store_of(env), env.now()
    await store.declare([declared()])
    await store.decide(plan(until=at + MINUTE))
    await store.decide(plan(until=at - MINUTE))
    assert (await found(env)).watermark == at + MINUTE


async def test_an_older_declaration_decides_nothing(env: DriverEnv) -> None:
    store, at = store_of(env), env.now()
    old, new = declared(version="1"), declared(version="2", cron="*/5 * * * *")
    await store.declare([old])
    await store.declare([new])

    assert await store.decide(plan(*firing(at), of=old, until=at)) is None
    assert await store.decide(plan(*firing(at), of=new, until=at)) is not None
    assert (await found(env)).code_version == "2"


async def test_a_version_that_starts_again_during_a_rollout_does_not_come_back(env: DriverEnv) -> None:
    store = store_of(env)
    await store.declare([declared(version="1")])
    await store.declare([declared(version="2")])
    await env.advance(DECLARATION_KEPT / 2)
    await store.declare([declared(version="2")])
    await store.declare([declared(version="1")], is_start=True)
    assert (await found(env)).code_version == "2"


async def test_a_scheduler_that_was_held_up_for_long_does_not_bring_an_old_version_back(env: DriverEnv) -> None:
    store = store_of(env)
    await store.declare([declared(version="1")], is_start=True)
    await env.advance(10 * MINUTE)
    await store.declare([declared(version="2")], is_start=True)
    await store.declare([declared(version="1")])
    assert (await found(env)).code_version == "2"
    await env.advance(10 * MINUTE)
    await store.declare([declared(version="1")])
    await store.declare([declared(version="2")])
    assert (await found(env)).code_version == "2"


async def test_a_version_that_nobody_runs_any_more_makes_way(env: DriverEnv) -> None:
    store = store_of(env)
    await store.declare([declared(version="1")])
    await store.declare([declared(version="2")])
    for _ in range(3):
        await env.advance(DECLARATION_KEPT / 2)
        await store.declare([declared(version="1")])
    view = await found(env)
    assert view.code_version == "1"
    assert view.is_declared(env.now())
    assert not view.is_declared(env.now() + DECLARATION_KEPT + MINUTE)


async def test_rolling_back_long_after_brings_the_old_version_back_at_once(env: DriverEnv) -> None:
    store = store_of(env)
    await store.declare([declared(version="1")])
    await env.advance(10 * MINUTE)
    await store.declare([declared(version="2")], is_start=True)
    await store.declare([declared(version="1")], is_start=True)
    assert (await found(env)).code_version == "1"
    assert (await found(env)).published_at == env.now()


async def test_another_expression_or_zone_begins_anew_and_the_same_one_goes_on(env: DriverEnv) -> None:
    store, start = store_of(env), env.now()
    await store.declare([declared(version="1")])
    await env.advance(10 * MINUTE)
    await store.declare([declared(version="2")])
    assert (await found(env)).watermark == start
    await store.declare([declared(version="3", cron="*/5 * * * *")])
    assert (await found(env)).watermark == start + 10 * MINUTE
    await env.advance(10 * MINUTE)
    await store.declare([declared(version="4", cron="*/5 * * * *", tz="Europe/Berlin")])
    assert (await found(env)).watermark == start + 20 * MINUTE


async def test_a_schedule_that_skips_looks_at_what_has_not_ended(env: DriverEnv) -> None:
    store, at = store_of(env), env.now()
    await store.declare([declared()])
    planned = firing(at, at + MINUTE)
    (first, _second) = jobs(planned)

    decided = await store.decide(plan(*planned, until=at + MINUTE, overlap=Overlap.SKIP))
    assert decided is not None
    assert [(one.outcome, one.why, one.job_id) for one in decided] == [
        (FIRED, None, first.id),
        (SKIPPED, "overlap", first.id),
    ]
    held = await env.claim_one(await env.register())
    running = await store.decide(plan(*firing(at + 2 * MINUTE), until=at, overlap=Overlap.SKIP))
    assert running is not None
    assert [(one.why, one.job_id) for one in running] == [("overlap", first.id)]

    await env.close_attempt(held.token, Completed(result="null"))
    after = await store.decide(plan(*firing(at + 3 * MINUTE), until=at, overlap=Overlap.SKIP))
    assert after is not None
    assert [one.outcome for one in after] == [FIRED]


async def test_a_key_that_is_taken_skips_and_names_the_job_that_has_it(env: DriverEnv) -> None:
    store, at = store_of(env), env.now()
    await store.declare([declared()])
    holder = await env.enqueue(key="one", fingerprint=1)

    decided = await store.decide(
        plan(
            *firing(at, key="one", fingerprint=1),
            *firing(at + MINUTE, key="one", fingerprint=1, on_conflict="error"),
            *firing(at + 2 * MINUTE, key="one", fingerprint=2),
            *firing(at + 3 * MINUTE),
            until=at + 3 * MINUTE,
        )
    )

    assert decided is not None
    assert [(one.outcome, (one.why or "").partition(":")[0]) for one in decided] == [
        (SKIPPED, "deduped"),
        (SKIPPED, "JOB_DUPLICATE"),
        (SKIPPED, "IDEMPOTENCY_MISMATCH"),
        (FIRED, ""),
    ]
    assert [one.job_id for one in decided[:3]] == [holder] * 3


async def test_a_job_that_only_stood_in_the_way_is_no_overlap(env: DriverEnv) -> None:
    store, at = store_of(env), env.now()
    await store.declare([declared()])
    await env.enqueue(key="one", fingerprint=1)
    whys = []
    for planned in (firing(at, key="one", fingerprint=1), firing(at + MINUTE), firing(at + 2 * MINUTE)):
        decided = await store.decide(plan(*planned, until=at, overlap=Overlap.SKIP))
        whys += [one.why for one in decided or ()]
    assert whys == ["deduped", None, "overlap"]


async def test_a_pause_skips_and_resuming_catches_up_nothing(env: DriverEnv) -> None:
    store, at = store_of(env), env.now()
    await store.declare([declared()])
    await store.pause(NIGHTLY, by="ada", reason="moves")
    await env.advance(MINUTE)
    await store.pause(NIGHTLY, by="bob")
    view = await found(env)
    assert (view.paused_at, view.paused_by, view.pause_reason) == (at, "ada", "moves")
    assert (await store.standings([NIGHTLY])).by_name[NIGHTLY].is_paused

    assert await store.decide(plan(*firing(at), until=at)) is None
    assert await store.decide(plan(Planned(at=at, why="paused"), until=at, is_paused=True)) is not None

    await env.advance(9 * MINUTE)
    await store.resume(NIGHTLY)
    view = await found(env)
    assert (view.paused_at, view.watermark) == (None, at + 10 * MINUTE)
    assert await store.decide(plan(until=at, is_paused=True)) is None

    await env.advance(10 * MINUTE)
    await store.resume(NIGHTLY)
    assert (await found(env)).watermark == at + 10 * MINUTE


async def test_a_pause_outlives_a_deploy(env: DriverEnv) -> None:
    store = store_of(env)
    await store.declare([declared()])
    await store.pause(NIGHTLY, by="ada")
    await store.declare([declared(version="2", cron="0 3 * * *")])
    assert (await found(env)).paused_by == "ada"


async def test_firing_now_needs_no_instant_of_the_rule(env: DriverEnv) -> None:
    store, at = store_of(env), env.now()
    await store.declare([declared()])
    await store.pause(NIGHTLY, by="ada")
    first, second = new_job(), new_job()

    decided = await store.fire(NIGHTLY, first, by="ada")
    await store.fire(NIGHTLY, second, by="bob")

    assert (decided.outcome, decided.job_id) == (FIRED, first.id)
    rows = (await found(env)).occurrences
    assert [(row.by, row.job_id) for row in rows] == [("bob", second.id), ("ada", first.id)]
    assert all(at < row.at < at + timedelta(seconds=1) and row.at.microsecond for row in rows)
    assert (await found(env)).watermark == at


async def test_firing_now_raises_what_refuses_the_job_and_keeps_nothing(env: DriverEnv) -> None:
    store = store_of(env)
    await store.declare([declared()])
    holder = await env.enqueue(key="one", fingerprint=1)
    with pytest.raises(JobDuplicate):
        await store.fire(NIGHTLY, new_job(key="one", fingerprint=1, on_conflict="error"), by="ada")
    assert (await found(env)).occurrences == ()
    deduped = await store.fire(NIGHTLY, new_job(key="one", fingerprint=1), by="ada")
    assert (deduped.outcome, deduped.why, deduped.job_id) == (SKIPPED, "deduped", holder)


async def test_verbs_on_a_schedule_that_is_not_there_say_so(env: DriverEnv) -> None:
    store, at = store_of(env), env.now()
    for verb in (store.pause("x", by="ada"), store.resume("x"), store.fire("x", new_job(), by="ada")):
        with pytest.raises(NotFound):
            await verb
    assert await store.find("x") is None
    assert await store.decide(plan(*firing(at), until=at)) is None
    assert (await env.driver.stats()).by_state.get(State.READY, 0) == 0


async def test_schedules_are_listed_by_name_with_their_newest_occurrences(env: DriverEnv) -> None:
    store, at = store_of(env), env.now()
    await store.declare([declared("b"), declared(), declared("a")])
    await store.decide(plan(*firing(at, at + MINUTE, at + 2 * MINUTE), until=at))
    views = await store.schedules(occurrences=2)
    assert [view.name for view in views] == ["a", "b", NIGHTLY]
    assert [len(view.occurrences) for view in views] == [0, 0, 2]


async def test_old_rows_are_trimmed_in_batches(env: DriverEnv) -> None:
    store, at = store_of(env), env.now()
    await store.declare([declared()])
    await store.decide(plan(*(Planned(at=at + n * MINUTE, why="paused") for n in range(3)), until=at))
    assert await store.trim() == 0
    await env.advance(OCCURRENCES_KEPT + MINUTE)
    assert await store.trim(2) == 2
    assert await store.trim(2) == 1
    assert (await found(env)).occurrences == ()
