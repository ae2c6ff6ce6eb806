"""Job types with limits, and the sentences in which tests speak of the gate."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from app.domain.job import ClaimedJob, JobId, LimitKey, WorkerId
from app.domain.limit import DEFAULT_LIMIT, RATE, Admitted, SlotQuery
from app.domain.snapshot import JobTypeDoc, JobView
from app.drivers.protocol import ClaimRequest, QueueShare
from tests.support.drivers import NAME, QUEUE, DriverEnv

ALL = LimitKey(DEFAULT_LIMIT, "")
RATED = LimitKey(RATE, "")


def keyed(key: str, limit: str = DEFAULT_LIMIT) -> LimitKey:
    return LimitKey(limit, key)


async def declare(
    env: DriverEnv, n: int | None = 1, *, name: str = NAME, version: str = "1.0.0", rate: Any = None, **others: int
) -> None:
    """Publish a job type with a limit of `n`, others by name, and a rate of `(n, per)`."""
    limits = ({} if n is None else {DEFAULT_LIMIT: n}) | others
    policy: dict[str, Any] = {"limits": [{"name": limit, "n": most, "key": None} for limit, most in limits.items()]}
    if rate is not None:
        policy["rate"] = {"n": rate[0], "per_ms": rate[1] // timedelta(milliseconds=1), "key": None}
    document = json.dumps({"name": name, "policy": policy})
    await env.driver.publish_job_types([JobTypeDoc(name=name, code_version=version, document=document)])


async def limited(env: DriverEnv, count: int = 1, *, limits: Sequence[LimitKey] = (ALL,), **fields: Any) -> list[JobId]:
    """Enqueue limited jobs, one after the other."""
    return [await env.enqueue(limits=tuple(limits), **fields) for _ in range(count)]


def request(
    worker: WorkerId,
    *,
    queues: Sequence[str] = (QUEUE,),
    names: Iterable[str] = (NAME,),
    room: int = 10,
    alone_ok: bool = True,
) -> ClaimRequest:
    shares = tuple(QueueShare(queue=queue, room=room) for queue in queues)
    return ClaimRequest(worker_id=worker, shares=shares, names=frozenset(names), room=room, alone_ok=alone_ok)


async def admit(env: DriverEnv, worker: WorkerId, **where: Any) -> tuple[ClaimedJob, ...]:
    """Look into the gate once."""
    return (await looked(env, worker, **where)).jobs


async def looked(env: DriverEnv, worker: WorkerId, **where: Any) -> Admitted:
    """Look into the gate once, and give the whole answer; nobody else decides meanwhile."""
    answer = await env.driver.admit(request(worker, **where))
    assert not answer.is_contended
    return answer


async def admit_one(env: DriverEnv, worker: WorkerId, **where: Any) -> ClaimedJob:
    (job,) = await admit(env, worker, **where)
    return job


async def held_by(env: DriverEnv, **where: Any) -> list[JobId]:
    """Name the jobs that hold slots, oldest first."""
    return [slot.job_id for slot in await env.driver.slots(SlotQuery(**where))]


async def reason_of(env: DriverEnv, job_id: JobId) -> str | None:
    """Say why a job that is ready waits."""
    view: JobView = await env.describe(job_id)
    assert view.state == "ready"
    return view.state_reason


def ids(jobs: Iterable[ClaimedJob]) -> list[JobId]:
    return [job.token.job_id for job in jobs]
