"""The shop's API: `uvicorn app.main:api`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request
from outlast.drivers.postgres.driver import PostgresDriver
from outlast.jobs import Client, use_client
from pydantic import BaseModel, Field

from .jobs import Confirmation, confirm_order
from .store import Base, Order, new_engine, sessions_on

CARD_LIMIT_CENTS = 100_000


class NewOrder(BaseModel):
    """An order as it is placed."""

    item: str = Field(min_length=1, max_length=100)
    cents: int = Field(gt=0, le=2_000_000_000)


class PlacedOrder(BaseModel):
    """An order as it is stored, and the job that confirms it."""

    id: int
    state: str
    job_id: str | None = None


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Make the shop's tables, and a client of Outlast on the shop's own engine."""
    engine = new_engine()
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    driver = PostgresDriver(engine)
    await driver.open()
    app.state.sessions = sessions_on(engine)
    app.state.jobs = Client(driver, enqueued_by="shop")
    try:
        yield
    finally:
        await driver.close()
        await engine.dispose()


api = FastAPI(title="Shop", lifespan=lifespan)


@api.post("/orders", status_code=201)
async def place_order(new: NewOrder, request: Request) -> PlacedOrder:
    """Store an order and stage its confirmation in one transaction; neither is there when the card is refused."""
    shop = request.app.state
    with use_client(shop.jobs):
        async with shop.sessions.begin() as session:
            order = Order(item=new.item, cents=new.cents)
            session.add(order)
            await session.flush()  # gives it its id
            staged = await confirm_order.enqueue(Confirmation(order_id=order.id), session=session)
            charge(new.cents)
    return PlacedOrder(id=order.id, state=order.state, job_id=str(staged.id))


@api.get("/orders/{order_id}")
async def show_order(order_id: int, request: Request) -> PlacedOrder:
    """Show an order."""
    async with request.app.state.sessions() as session:
        order = await session.get(Order, order_id)
    if order is None:
        raise HTTPException(404, "no such order")
    return PlacedOrder(id=order.id, state=order.state)


def charge(cents: int) -> None:
    """Charge the card, which refuses large sums."""
    if cents > CARD_LIMIT_CENTS:
        raise HTTPException(402, "the card was refused")
