"""What the shop does in the background."""

from __future__ import annotations

from outlast.jobs import job
from pydantic import BaseModel
from sqlalchemy import update

from .store import Order, OrderState, new_engine, sessions_on


class Confirmation(BaseModel):
    """Which order to confirm."""

    order_id: int


@job("orders.confirm", idempotency_key="order:{order_id}")
async def confirm_order(payload: Confirmation) -> bool:
    """Confirm an order; False when an earlier attempt has done it already."""
    engine = new_engine()
    try:
        async with sessions_on(engine).begin() as session:
            changed = await session.execute(
                update(Order)
                .where(Order.id == payload.order_id, Order.state == OrderState.PLACED)
                .values(state=OrderState.CONFIRMED)
            )
            return changed.rowcount == 1
    finally:
        await engine.dispose()
