"""The fleet: job types, workers, drains, deploys, the outbox, the doctor's checks, the version."""

from __future__ import annotations

from typing import Literal

from ..answers.fleet import Checkup, Deploy, Drain, FleetDrain, JobType, Outbox, Version, Worker
from ..answers.stats import ServiceStats
from ..call import Call, Page, get, get_items, get_pages, path, post
from ..wire import TypeLike, name_of


def list_job_types() -> Call[tuple[JobType, ...]]:
    """Give every published job type by name."""
    return get_items("/v1/job-types", JobType)


def get_job_type(job_type: TypeLike) -> Call[JobType]:
    """Give one job type with its schemas and its policy."""
    return get(path("v1", "job-types", name_of(job_type)), JobType)


def list_workers() -> Call[tuple[Worker, ...]]:
    """Give live workers and those that left in the last hour, newest first."""
    return get_items("/v1/workers", Worker)


def get_worker(worker: Worker | str) -> Call[Worker]:
    """Give one worker that lives or left in the last hour."""
    return get(path("v1", "workers", worker if isinstance(worker, str) else worker.id), Worker)


def drain_worker(worker: Worker | str, *, reason: str | None = None) -> Call[Worker]:
    """Ask a worker to leave, wherever it runs; it stops taking jobs at its next heartbeat."""
    worker_id = worker if isinstance(worker, str) else worker.id
    return post(path("v1", "workers", worker_id, "drain"), Worker, reason=reason)


def get_drain() -> Call[Drain]:
    """Say how far the process that answers is with leaving."""
    return get("/v1/drain", Drain)


def get_fleet_drain() -> Call[FleetDrain]:
    """Say how far every worker is with leaving."""
    return get("/v1/drain", FleetDrain, scope="fleet")


def start_drain() -> Call[Drain]:
    """Let the process that answers leave."""
    return post("/v1/drain", Drain)


def get_stats(
    window: Literal["1h", "24h", "7d"] | None = None,
    *,
    bucket: Literal["1m", "5m", "15m", "30m", "1h", "3h", "6h", "1d"] | None = None,
    job_type: TypeLike | None = None,
    queue: str | None = None,
) -> Call[ServiceStats]:
    """Chart what attempts came to in the last hour, or another window, in points of `bucket`."""
    name = None if job_type is None else name_of(job_type)
    return get("/v1/stats", ServiceStats, window=window, bucket=bucket, name=name, queue=queue)


def list_deploys(*, limit: int | None = None) -> Call[Page[Deploy]]:
    """Give the reports of drained workers, newest first: what was cut, and how soon it was claimed again."""
    return get_pages("/v1/deploys", Deploy, ("before", "next_before"), limit=limit)


def get_outbox() -> Call[Outbox]:
    """Say what was staged and not published yet, and what was refused."""
    return get("/v1/outbox", Outbox)


def run_doctor() -> Call[Checkup]:
    """Let the service look over itself: what is wrong, and how to mend it."""
    return get("/v1/doctor", Checkup)


def get_version() -> Call[Version]:
    """Say what runs there."""
    return get("/version", Version)
