"""Between stored text and a body: the payload becomes arguments, what the body returns becomes a result.

Called by the worker for each attempt. Neither function runs the body.
"""

from __future__ import annotations

from typing import Any

from ..domain.json_text import KIB
from ..steps.values import to_text
from .context import JobContext
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
    return to_text(handle.signature.result, value, of=f"the result of {handle.name}", max_bytes=max_bytes)
