"""What a type checker must know about job types, and what it must refuse.

Never imported: `test_handles.py` runs mypy over it, and so does every check of the whole tree. A line that must be an
error carries its ignore; an ignore that hides nothing is an error itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import assert_type

from pydantic import BaseModel

from app.domain.job import JobId
from app.jobs import EnqueuedJob, JobContext, JobHandle, JobRef, RetryAfter, RetryPolicy, Snooze, StagedJob, job


class Receipt(BaseModel):
    order_id: int


class Sent(BaseModel):
    number: str


@job("receipts.send", queue="mail", retry=RetryPolicy(max_attempts=5), timeout=timedelta(minutes=2))
async def send(ctx: JobContext, payload: Receipt) -> Sent:
    await ctx.signal.wait()
    return Sent(number=str(payload.order_id))


@job("receipts.print")
async def print_one(payload: Receipt) -> None: ...


@job("receipts.count")
def count(ctx: JobContext, payload: Receipt) -> int:
    if ctx.signal.wait(timedelta(seconds=1)):
        raise RetryAfter(timedelta(seconds=3))
    raise Snooze(timedelta(seconds=3))


@job("receipts.total")
def total(payload: Receipt) -> list[int]:
    return [payload.order_id]


@job("receipts.archive")
async def archive(ctx: JobContext, year: int, *, compress: bool = True) -> str:
    return f"{ctx.name} {year} {compress}"


@job("receipts.sweep")
def sweep(year: int) -> dict[str, int]:
    return {"year": year}


def payload_and_result_are_inferred() -> tuple[object, ...]:
    a: JobHandle[Receipt, Sent] = send
    b: JobHandle[Receipt, None] = print_one
    c: JobHandle[Receipt, int] = count
    d: JobHandle[Receipt, list[int]] = total
    e: JobHandle[Mapping[str, object], str] = archive
    f: JobHandle[Mapping[str, object], dict[str, int]] = sweep
    g: JobHandle[Receipt, int] = send  # type: ignore[assignment] # gives Sent
    h: JobHandle[Sent, Sent] = send  # type: ignore[assignment] # takes Receipt
    return a, b, c, d, e, f, g, h


async def handles_are_called_as_their_functions(ctx: JobContext) -> None:
    assert_type(await send(ctx, Receipt(order_id=1)), Sent)
    assert_type(count(ctx, Receipt(order_id=1)), int)
    assert_type(total(Receipt(order_id=1)), list[int])
    assert_type(await archive(ctx, 2026, compress=False), str)
    assert_type(sweep(year=2026), dict[str, int])
    await send(ctx, 3)  # type: ignore[arg-type] # no receipt
    await send(Receipt(order_id=1))  # type: ignore[call-arg, arg-type] # no context
    send(ctx, Receipt(order_id=1))  # type: ignore[unused-coroutine] # not awaited
    sweep("2026")  # type: ignore[arg-type] # no number


async def enqueue_takes_the_payload_and_known_options(ctx: JobContext) -> None:
    assert_type(await send.enqueue(Receipt(order_id=1)), EnqueuedJob[Sent])
    assert_type(await send.enqueue_many([Receipt(order_id=1)], priority=3), tuple[EnqueuedJob[Sent], ...])
    assert_type(await ctx.enqueue(total, Receipt(order_id=1), delay=timedelta(hours=1)), EnqueuedJob[list[int]])
    assert_type(
        await sweep.enqueue({"year": 2026}, idempotency_key="2026", on_conflict="error"), EnqueuedJob[dict[str, int]]
    )
    await send.enqueue(3)  # type: ignore[call-overload] # no receipt
    await send.enqueue(Sent(number="1"))  # type: ignore[call-overload] # another model
    await send.enqueue_many([Sent(number="1")])  # type: ignore[list-item] # another model
    await sweep.enqueue(2026)  # type: ignore[call-overload] # no mapping
    await send.enqueue(Receipt(order_id=1), dealy=1)  # type: ignore[call-overload] # misspelt
    await send.enqueue(Receipt(order_id=1), delay=1)  # type: ignore[call-overload] # no unit
    await send.enqueue(Receipt(order_id=1), on_conflict="ignore")  # type: ignore[call-overload] # unknown word
    await send.enqueue_many([], idempotency_key="x")  # type: ignore[call-overload] # one key for many
    await ctx.enqueue(total, 3)  # type: ignore[misc] # no receipt
    send.enqueue(Receipt(order_id=1))  # type: ignore[unused-coroutine] # not awaited


async def staging_answers_with_a_staged_job(session: object) -> None:
    assert_type(await send.enqueue(Receipt(order_id=1), session=session), StagedJob)
    assert_type(await send.enqueue(Receipt(order_id=1), mode="required"), StagedJob)
    assert_type(await send.enqueue_many([Receipt(order_id=1)], session=session), tuple[StagedJob, ...])
    assert_type(send.stage(Receipt(order_id=1), session=session, idempotency_key="x"), StagedJob)
    await send.enqueue(Receipt(order_id=1), mode="maybe")  # type: ignore[call-overload] # unknown word
    send.stage(3, session=session)  # type: ignore[arg-type] # no receipt


async def results_are_typed_by_the_handle(job_id: JobId, staged: StagedJob) -> None:
    assert_type(await (await send.enqueue(Receipt(order_id=1))).result(timeout=timedelta(seconds=9)), Sent)
    assert_type(await send.result(job_id), Sent)
    assert_type(await total.result(staged, timeout=None), list[int])
    assert_type(await sweep.job(job_id).result(), dict[str, int])
    assert_type([await one.result() for one in await archive.enqueue_many([{"year": 2026}])], list[str])
    nothing: EnqueuedJob[None] = await print_one.enqueue(Receipt(order_id=1))
    await nothing.result()
    known: JobRef[object] = send.job(job_id)
    await known.result(timeout=9)  # type: ignore[arg-type] # no unit
    await total.result("0190")  # type: ignore[arg-type] # no id
    await send.result(sweep.job(job_id))  # type: ignore[arg-type] # another type's job
    (await send.enqueue(Receipt(order_id=1))).result()  # type: ignore[unused-coroutine] # not awaited


def declarations_are_checked() -> None:
    job("a", timeout=3)  # type: ignore[arg-type] # no unit
    job("a", timeot=timedelta(seconds=3))  # type: ignore[call-arg] # misspelt
    job("a", abort="kill")  # type: ignore[arg-type] # unknown word


async def the_signal_is_awaited_or_blocks_for_a_while(ctx: JobContext) -> None:
    assert_type(ctx.signal.wait(timedelta(seconds=1)), bool)
    ctx.signal.wait()  # type: ignore[unused-coroutine] # typed for the body that awaits it
