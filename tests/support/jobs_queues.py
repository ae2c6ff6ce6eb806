"""Job types in queues of their own."""

from __future__ import annotations

from app.jobs import job


@job("queues.mail", queue="mail")
async def mail() -> None: ...


@job("queues.report", queue="reports")
async def report() -> None: ...


@job("queues.plain")
async def plain() -> None: ...
