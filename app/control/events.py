"""Events: emitted for runs that wait for them, and listed.

An event is of one tenant, for which its caller acts. Called by the HTTP routes and the command line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from uuid import UUID

from uuid_utils.compat import uuid7

from ..domain.errors import RequestInvalid
from ..domain.event import Emitted, EventId, EventQuery, EventView, NewEvent
from ..domain.job import DEFAULT_TENANT, NAME_PATTERN
from ..domain.json_text import DEFAULT, JsonLimits, decode
from ..domain.request_claim import RequestClaim, event_of
from ..domain.text import is_printable, printable_key
from ..drivers.protocol import JobDriver
from ..steps.repeat import until_known

__all__ = ["EventControl", "EventQuery"]


class EventControl:
    """The verbs on events."""

    def __init__(self, driver: JobDriver, *, limits: JsonLimits = DEFAULT, new_id: Callable[[], UUID] = uuid7) -> None:
        self._driver = driver
        self._limits = limits
        self._new_id = new_id

    async def emit(
        self,
        name: str,
        key: str,
        payload: str = "null",
        *,
        tenant: str | None = None,
        by: str | None = None,
        claim: RequestClaim | None = None,
    ) -> Emitted:
        """Store an event and end the waits it matches, durable when this returns; says how many there were.

        `payload` is JSON text, kept and given to the runs as it is. Without a tenant it is of the default one. `claim`
        is the request that asks for it, marked in the same commit.

        Raises:
            RequestInvalid: the name, the key or the tenant (detail `pointer`).
            JsonInvalid, PayloadTooLarge: the payload.
        """
        _refuse_words(name, key, tenant)
        decode(payload, limits=self._limits)
        event = NewEvent(
            id=EventId(self._new_id()),
            tenant=DEFAULT_TENANT if tenant is None else tenant,
            name=name,
            key=key,
            payload=payload,
            emitted_by=by,
        )
        if claim is None:
            return await until_known(lambda: self._driver.emit(event))
        if claim.effect is not None:
            return event_of(claim.effect)
        return await until_known(lambda: self._driver.emit_once(event, claim))

    async def list(self, query: EventQuery) -> tuple[EventView, ...]:
        """Give stored events, newest first."""
        return await self._driver.events(query)


def _refuse_words(name: str, key: str, tenant: str | None) -> None:
    if re.fullmatch(NAME_PATTERN, name) is None:
        raise RequestInvalid(
            f"{name[:64]!a} is not the name of an event",
            fix=f"use a name that matches {NAME_PATTERN}",
            pointer="/name",
        )
    wrong = printable_key(key)
    if wrong is not None:
        raise RequestInvalid(
            f"the key of the event cannot be used: {wrong}", fix="use 1 to 255 printable characters", pointer="/key"
        )
    if tenant is not None and not is_printable(tenant):
        raise RequestInvalid(
            "the tenant of the event cannot be used", fix="use 1 to 255 printable characters", pointer="/tenant"
        )
