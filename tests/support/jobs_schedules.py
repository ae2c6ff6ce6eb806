"""A module that declares a job and a schedule for it."""

from __future__ import annotations

from app.jobs import job, schedule


@job("ticks.note")
async def note(text: str = "tick") -> str:
    return text


every_minute = schedule("every-minute", job=note, cron="* * * * *", tz="UTC", payload={"text": "tock"})
