"""Between stored text and a body: the payload becomes arguments, what the body returns becomes a result.

Called by the worker for each attempt. Neither function runs the body.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ..domain.errors import JsonInvalid, PayloadTooLarge, ResultInvalid
from ..domain.json_text import KIB, JsonLimits, decode
from .context import JobContext
from .encoding import UnencodableError, encode_value, refuse_silent_losses
from .handle import JobHandle
from .jobtype import parse_payload

RESULT_MAX_BYTES = 1024 * KIB


def bind(
    handle: JobHandle[Any, Any], payload: str, context: JobContext
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Make the positional and keyword arguments of one call from the payload's text.

    Raises:
        PayloadInvalid: the job's model refuses it.
    """
    signature = handle.signature
    return signature.arguments(parse_payload(handle.name, signature, payload), context)


def encode_result(handle: JobHandle[Any, Any], value: object, *, max_bytes: int = RESULT_MAX_BYTES) -> str | None:
    """Give a result as JSON text by the body's return annotation, None for no result.

    Raises:
        ResultInvalid: it is not of the annotated type, has no JSON form, or is over a limit.
    """
    if value is None and handle.signature.may_give_nothing:
        return None
    try:
        refuse_silent_losses(value)
        result = handle.signature.result
        text = encode_value(partial(result.dump_json, value), partial(result.dump_python, value))
        decode(text, limits=JsonLimits(max_bytes=max_bytes, max_keys=max_bytes, max_nodes=max_bytes))
    except (UnencodableError, JsonInvalid) as exc:
        raise ResultInvalid(
            f"the result of {handle.name} cannot be stored: {exc.args[0]}",
            fix="return what the return annotation says, in values that JSON can carry",
        ) from exc
    except PayloadTooLarge as exc:
        raise ResultInvalid(
            f"the result of {handle.name} is too large: {exc.cause}",
            fix="store the data elsewhere and return a reference to it",
        ) from exc
    return None if value is None else text
