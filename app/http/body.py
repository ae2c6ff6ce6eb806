"""The bytes of a request body, let in: type, encoding, size while they arrive, then JSON within its limits.

The framework's own parser is never used: it turns a NaN, a lone surrogate or a very deep text into a 500 or lets them
through. A body that is too large is refused before it is held, its connection closed. What comes out is the decoded
object for checking fields, and the raw text of each member for keeping. Called by the routers.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from ..domain.errors import MediaUnsupported, PayloadTooLarge, RequestInvalid
from ..domain.json_text import DEFAULT, JsonLimits, decode, members, read_text
from .framework import body_errors, refusal
from .problems import MALFORMED_HEADER, STATUS_DETAIL

ModelT = TypeVar("ModelT", bound=BaseModel)

# Room for the fields around a payload, meta and tags among them.
ENVELOPE_BYTES = 65_536
ENVELOPE_NODES = 1_000
# Of a batch of jobs.
BATCH_BYTES = 5 * 1024 * 1024
_BATCH_NODES = 500_000
_JSON_TYPE = re.compile(r'application/json(?:\s*;\s*charset\s*=\s*"?utf-8"?)?\s*;?', re.IGNORECASE)
# From the first byte to the last; a client this slow holds a task and a buffer for nothing.
READ_SECONDS = 30.0
_REQUEST_TIMEOUT = 408


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A JSON object: its members decoded, and as the text they were sent as; and the bytes of all of it."""

    values: Mapping[str, object] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    raw: bytes = b""

    def parse(self, model: type[ModelT]) -> ModelT:
        """Check the members against a strict model. Raises `REQUEST_INVALID` with a pointer per field."""
        try:
            return model.model_validate(dict(self.values), strict=True)
        except ValidationError as exc:
            raise refusal(body_errors(exc)) from exc


async def read_body(request: Request, *, payload_max_bytes: int) -> Body:
    """Read a body that must be a JSON object.

    Raises:
        MediaUnsupported: another type than `application/json`, or an encoded body.
        PayloadTooLarge: more bytes than a payload of the largest size needs.
        JsonInvalid: not JSON that can be kept and given back.
        RequestInvalid: not an object, or it did not arrive in time.
    """
    _check_media(request)
    limit = payload_max_bytes + ENVELOPE_BYTES
    # A payload at its limits is a member of the body: one level deeper, among a few values more.
    limits = JsonLimits(max_bytes=limit, max_depth=DEFAULT.max_depth + 1, max_nodes=DEFAULT.max_nodes + ENVELOPE_NODES)
    return _parse(await _read(request, limit), limits)


async def read_batch(request: Request) -> Body:
    """Read a body that holds many jobs: up to 5 MiB, whose payloads are held to their own limits later. As `read_body`.

    Raises:
        OutlastError: what `read_body` raises.
    """
    _check_media(request)
    # The payloads are members of objects in an array in the body.
    limits = JsonLimits(max_bytes=BATCH_BYTES, max_depth=DEFAULT.max_depth + 3, max_nodes=_BATCH_NODES)
    return _parse(await _read(request, BATCH_BYTES), limits)


async def read_optional_body(request: Request, *, payload_max_bytes: int) -> Body:
    """Read a body that may be left out; an empty one counts as none, whatever its type."""
    headers = request.headers
    if "transfer-encoding" not in headers and headers.get("content-length", "0") == "0":
        return Body()
    return await read_body(request, payload_max_bytes=payload_max_bytes)


# Of a request whose answer is never left out, whatever it prefers.
SHOWN_ONCE = "is_shown_once"


def refuse_request_key(request: Request) -> None:
    """Refuse a request key where the answer must not be kept: it holds a secret that is shown once, and so always."""
    setattr(request.state, SHOWN_ONCE, True)
    if "idempotency-key" in request.headers:
        raise RequestInvalid(
            "answers that hold a secret are not kept, so Idempotency-Key cannot be honoured here",
            fix="leave it out; when an answer was lost, look what was made, and end that before you ask again: the"
            " secret in use is taken for its overlap, and would end at once with a second rotation",
            errors=[{"in": "header", "pointer": "/Idempotency-Key", "detail": "is not for answers that hold a secret"}],
            **{STATUS_DETAIL: MALFORMED_HEADER},
        )


def _check_media(request: Request) -> None:
    encodings = request.headers.getlist("content-encoding")
    if any(part.strip().lower() not in ("", "identity") for part in ",".join(encodings).split(",")):
        raise MediaUnsupported("the body is encoded", fix="send it without Content-Encoding")
    types = request.headers.getlist("content-type")
    if len(types) != 1 or not _JSON_TYPE.fullmatch(types[0].strip()):
        raise MediaUnsupported(
            "the body is not declared as JSON", fix="send `Content-Type: application/json`; UTF-8 is the only charset"
        )


async def _read(request: Request, limit: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > len(str(limit)) or int(declared) > limit):
        raise _too_large(limit)
    body = bytearray()
    try:
        async with asyncio.timeout(READ_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise _too_large(limit)
    except TimeoutError:
        details: dict[str, Any] = {STATUS_DETAIL: _REQUEST_TIMEOUT}
        raise RequestInvalid(
            f"the body did not arrive within {READ_SECONDS:g} s", fix="send it faster, or send less", **details
        ) from None
    return bytes(body)


def _parse(raw: bytes, limits: JsonLimits) -> Body:
    text = read_text(raw, limits=limits)
    values = decode(text, limits=limits)
    if not isinstance(values, dict):
        raise RequestInvalid(
            "the body is not a JSON object",
            fix='send an object, for example {"name": "…", "payload": {}}',
            errors=[{"in": "body", "pointer": "", "detail": "must be an object"}],
        )
    return Body(values=values, texts=members(text), raw=raw)


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"the body is larger than {limit} bytes",
        fix="store the data elsewhere and send a reference to it",
        limit=limit,
    )
