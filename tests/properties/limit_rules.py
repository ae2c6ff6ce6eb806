"""The commands of the state machine that are about limits: limited jobs, the gate, slots, rates, numbers of versions.

At which of several keys a job is parked is each driver's own: here every one of those is a limit, and a job that is
under a rate is under nothing else. A rate of a type is always the same, and its times are sums of powers of two.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from app.domain.job import ClaimedJob, LimitKey, WorkerId
from app.domain.limit import RATE, LimitRule, SlotQuery, SlotView, StoredLimit
from app.domain.snapshot import JobTypeDoc
from app.drivers.protocol import ClaimRequest, QueueShare
from tests.properties.driver_model import MOST_JOBS, names, one, picks, shapes
from tests.properties.run_rules import RunRules
from tests.support.twins import Pair, Side

limits = st.lists(
    st.sampled_from([LimitKey("limit", ""), LimitKey("limit", "x"), LimitKey("narrow", "y")]),
    min_size=1,
    max_size=2,
    unique_by=lambda limit: limit.limit,
) | st.sampled_from([[LimitKey(RATE, "")], [LimitKey(RATE, "x")]])
numbers = st.integers(1, 3)
versions = st.sampled_from(["1", "2"])
RATES = {"a.job": (1, timedelta(seconds=8)), "b.job": (2, timedelta(seconds=64))}


def document(limits: Iterable[StoredLimit | LimitRule]) -> str:
    """Give the document of a job type that declares these limits."""
    policy: dict[str, Any] = {"limits": []}
    for limit in limits:
        n = limit.n if isinstance(limit, LimitRule) else limit.declared
        if n is not None and limit.per is None:
            policy["limits"].append({"name": limit.limit, "n": n, "key": None})
        elif n is not None and limit.per is not None:
            policy["rate"] = {"n": n, "per_ms": limit.per // timedelta(milliseconds=1), "key": None}
    return json.dumps({"policy": policy})


class LimitRules(RunRules):
    """Commands in any order."""

    @precondition(lambda self: len(self.jobs) < MOST_JOBS)
    @rule(shape=shapes, under=limits)
    def enqueue_limited(self, shape: dict[str, Any], under: list[LimitKey]) -> None:
        self._enqueue(self._job(shape, limits=tuple(under)))

    @rule(name=names, version=versions, n=numbers, narrow=st.none() | numbers, is_rated=st.booleans())
    def publish_limits(self, name: str, version: str, n: int, narrow: int | None, is_rated: bool) -> None:
        rules = [LimitRule(limit="limit", n=n)]
        rules += [] if narrow is None else [LimitRule(limit="narrow", n=narrow)]
        rules += [LimitRule(limit=RATE, n=RATES[name][0], per=RATES[name][1])] if is_rated else []
        doc = JobTypeDoc(name=name, code_version=version, document=document(rules))
        self.twins.ask(lambda side: side.driver.publish_job_types([doc]))

    @rule(name=names, n=st.none() | numbers)
    def set_limit(self, name: str, n: int | None) -> None:
        self.twins.ask(lambda side: side.driver.set_limit(name, "limit", n, by="ann"))

    @precondition(lambda self: self.twins.workers)
    @rule(pick=picks, room=st.integers(1, 3), alone_ok=st.booleans())
    def admit(self, pick: int, room: int, alone_ok: bool) -> None:
        self._admit(pick, room, alone_ok=alone_ok)

    def _admit(self, pick: int, room: int, *, alone_ok: bool = True) -> None:
        worker: Pair[WorkerId] = one(self.twins.workers, pick)
        shares = (QueueShare(queue="default", room=room), QueueShare(queue="mail", room=room))
        known = frozenset({"a.job", "b.job"})

        async def admit(side: Side) -> tuple[ClaimedJob, ...]:
            request = ClaimRequest(worker_id=side.own(worker), shares=shares, names=known, room=room, alone_ok=alone_ok)
            return (await side.driver.admit(request)).jobs

        for token in self.twins.claim(admit):
            assert token.memory.claim_no > self.claimed.get(token.memory.job_id, 0)
            self.claimed[token.memory.job_id] = token.memory.claim_no
            self.tokens.append(token)

    @precondition(lambda self: self.tokens)
    @rule(pick=picks)
    def free_slots(self, pick: int) -> None:
        token = one(self.tokens, pick)
        self.twins.ask(lambda side: side.driver.free_slots([side.own(token)]))

    @rule()
    def sweep_slots(self) -> None:
        self.twins.ask(lambda side: side.driver.sweep_slots())

    @precondition(lambda self: self.jobs)
    @rule(pick=picks)
    def release_slots(self, pick: int) -> None:
        job = one(self.jobs, pick)

        async def release(side: Side) -> list[tuple[object, ...]]:
            return _shown(await side.driver.release_slots(job.id))

        self.twins.ask(release)

    @rule()
    def slots(self) -> None:
        async def slots(side: Side) -> list[tuple[object, ...]]:
            return _shown(await side.driver.slots(SlotQuery(limit=200)))

        self.twins.ask(slots)

    @rule()
    def stored_limits(self) -> None:
        self.twins.ask(lambda side: side.driver.stored_limits())


def _shown(slots: tuple[SlotView, ...]) -> list[tuple[object, ...]]:
    """Give slots without what is each store's own."""
    return sorted((str(one.job_id), one.claim_no, one.limit, one.key, one.is_open, one.taken_at) for one in slots)
