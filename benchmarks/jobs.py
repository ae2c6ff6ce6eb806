"""The job every throughput figure runs: it does nothing, through everything a real one goes through."""

from __future__ import annotations

from pydantic import BaseModel

from app.jobs import JobContext, job


class Nothing(BaseModel):
    """A payload of about twenty bytes."""

    number: int = 0


@job("bench.noop")
async def noop(ctx: JobContext, payload: Nothing) -> None:
    """Do nothing."""
