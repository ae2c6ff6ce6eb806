"""Events as tests emit them: a name, a key, and a payload of plain values."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from ..domain.event import EventId, NewEvent
from ..jobs.admission import Admission
from ..steps.values import to_text
from ..steps.waits import refuse_event

_MAX_BYTES = 256 * 1024
_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)


def new_event(name: str, key: str, payload: object, *, tenant: str) -> NewEvent:
    """Make an event.

    Raises:
        RequestInvalid: the name or the key cannot be one.
        ResultInvalid: the payload is nothing that JSON can carry.
    """
    refuse_event(name, key, None, "enqueue")
    text = to_text(_ANYTHING, payload, of=f"the payload of the event {name!r}", max_bytes=_MAX_BYTES)
    return NewEvent(
        id=EventId(Admission().new_id()),
        tenant=tenant,
        name=name,
        key=key,
        payload="null" if text is None else text,
        emitted_by="test",
    )
