"""Orders, and the sessions they are written in."""

from __future__ import annotations

import os
from enum import StrEnum

from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class OrderState(StrEnum):
    """How far an order has come."""

    PLACED = "placed"
    CONFIRMED = "confirmed"


class Base(DeclarativeBase):
    """The shop's tables."""


class Order(Base):
    """What somebody ordered."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    cents: Mapped[int]
    state: Mapped[str] = mapped_column(default=OrderState.PLACED)


def new_engine() -> AsyncEngine:
    """Give an engine on `DATABASE_URL`."""
    return create_async_engine(make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+asyncpg"))


def sessions_on(engine: AsyncEngine) -> async_sessionmaker[AsyncSession]:
    """Give the sessions of an engine; what was loaded stays readable after the commit."""
    return async_sessionmaker(engine, expire_on_commit=False)
