"""Page cursors: opaque to clients, checked by us.

A cursor names the id, the number, or the time and the id a page ended with and the filters it was given out for, so it
cannot be used with others. It is not secret and not signed: it carries nothing its holder has not been shown, and the
caller's tenant is applied anyway.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from ..domain.errors import CursorInvalid
from ..domain.job import JobId
from ..domain.snapshot import Place
from ..domain.webhook import DeliveryId

_FORMAT = b"\x01"
_BACK = b"\x02"
_PLACE = b"\x03"
_PLACE_BACK = b"\x04"
_HASH_BYTES = 8
_TIME_BYTES = 8
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LARGEST = 2**63 - 1
_LENGTH = len(_FORMAT) + 16 + _HASH_BYTES


def write_cursor(last: JobId, filters: Sequence[str | None]) -> str:
    """Give the cursor that continues after `last` under these filters."""
    return _encode(_FORMAT + last.bytes + _fingerprint(filters))


def read_cursor(text: str, filters: Sequence[str | None]) -> JobId:
    """Give the id a cursor continues after. Raises `CURSOR_INVALID` for any text not given out for these filters."""
    packed = _unpacked(text, filters, formats=(_FORMAT,))
    return JobId(UUID(bytes=packed[len(_FORMAT) : -_HASH_BYTES]))


def write_back_cursor(first: JobId, filters: Sequence[str | None]) -> str:
    """Give the cursor of the page before the one that begins with `first`."""
    return _encode(_BACK + first.bytes + _fingerprint(filters))


def read_two_way_cursor(text: str, filters: Sequence[str | None]) -> tuple[JobId, bool]:
    """Give the id of a cursor, and whether it leads back. Raises `CURSOR_INVALID` as `read_cursor` does."""
    packed = _unpacked(text, filters, formats=(_FORMAT, _BACK))
    return JobId(UUID(bytes=packed[len(_FORMAT) : -_HASH_BYTES])), packed.startswith(_BACK)


def write_place_cursor(place: Place, filters: Sequence[str | None], *, is_back: bool) -> str:
    """Give the cursor of the page behind a place in the order of a time, or of the one before it."""
    micros = (place.at - _EPOCH) // _MICROSECOND
    kind = _PLACE_BACK if is_back else _PLACE
    return _encode(kind + micros.to_bytes(_TIME_BYTES, "big", signed=True) + place.id.bytes + _fingerprint(filters))


def read_place_cursor(text: str, filters: Sequence[str | None]) -> tuple[Place, bool]:
    """Give the place of a cursor, and whether it leads back. Raises `CURSOR_INVALID` as `read_cursor` does."""
    packed = _unpacked(text, filters, formats=(_PLACE, _PLACE_BACK), length=_LENGTH + _TIME_BYTES)
    at, job_id = packed[1 : 1 + _TIME_BYTES], packed[1 + _TIME_BYTES : -_HASH_BYTES]
    try:
        instant = _EPOCH + int.from_bytes(at, "big", signed=True) * _MICROSECOND
    except OverflowError as exc:
        raise _refusal("it was not given out here") from exc
    return Place(instant, JobId(UUID(bytes=job_id))), packed.startswith(_PLACE_BACK)


def write_delivery_cursor(last: tuple[datetime, DeliveryId], filters: Sequence[str | None]) -> str:
    """Give the cursor of the deliveries before this one."""
    return write_place_cursor(Place(last[0], JobId(last[1])), filters, is_back=False)


def read_delivery_cursor(text: str, filters: Sequence[str | None]) -> tuple[datetime, DeliveryId]:
    """Give when the last delivery of a page was made, and its id. Raises `CURSOR_INVALID` as `read_cursor` does."""
    place, is_back = read_place_cursor(text, filters)
    if is_back:
        raise _refusal("it was not given out here")
    return place.at, DeliveryId(place.id)


def write_number_cursor(last: int, filters: Sequence[str | None]) -> str:
    """Give the cursor that continues after the row of this number."""
    return write_cursor(JobId(UUID(int=last)), filters)


def read_number_cursor(text: str, filters: Sequence[str | None]) -> int:
    """Give the number a cursor continues after. Raises `CURSOR_INVALID` as `read_cursor` does."""
    found = read_cursor(text, filters).int
    if found > _LARGEST:
        raise _refusal("it was not given out here")
    return found


def _unpacked(text: str, filters: Sequence[str | None], *, formats: tuple[bytes, ...], length: int = _LENGTH) -> bytes:
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as exc:
        raise _refusal("it was not given out here") from exc
    # The decoder skips characters outside its alphabet; a cursor has one spelling.
    if len(packed) != length or not packed.startswith(formats) or _encode(packed) != text:
        raise _refusal("it was not given out here")
    if packed[-_HASH_BYTES:] != _fingerprint(filters):
        raise _refusal("it was given out for other filters")
    return packed


def _encode(packed: bytes) -> str:
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode("ascii")


def _fingerprint(filters: Sequence[str | None]) -> bytes:
    return hashlib.blake2b(repr(list(filters)).encode("utf-8", "replace"), digest_size=_HASH_BYTES).digest()


def _refusal(why: str) -> CursorInvalid:
    return CursorInvalid(
        f"the cursor cannot be used: {why}",
        fix="start again without a cursor and pass next_cursor on unchanged, with the same filters",
    )
