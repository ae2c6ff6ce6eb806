"""Failures as they are stored: kind, text and traceback, bounded and free of what a database refuses.

Exceptions come from code we do not know: their texts can be endless, absent, or raise when asked for. Nothing here
raises. Called by `execute` for everything a body can throw.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType

from ..domain.errors import OutlastError
from ..domain.outcome import ErrorInfo
from ..domain.text import Keep, storable
from .containment import BodyExit

MESSAGE_MAX_BYTES = 8 * 1024
TRACEBACK_MAX_BYTES = 32 * 1024
REPLACED_MARK = " [NUL or lone surrogates replaced]"
_TYPE_MAX_BYTES = 200
_LEAVES_NAMED = 5

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_OWN_FOLDER = str(Path(__file__).parent)


def error_info(error: BaseException) -> ErrorInfo:
    """Describe an error for the ledger: message at most 8 KiB, traceback at most 32 KiB, its end kept."""
    error = _as_raised(error)
    return ErrorInfo(
        type=_stored(_kind(error), _TYPE_MAX_BYTES),
        message=_stored(_message(error), MESSAGE_MAX_BYTES),
        code=error.code if isinstance(error, OutlastError) else None,
        traceback=_stored(_trace(error), TRACEBACK_MAX_BYTES, keep="end"),
    )


def _stored(text: str, max_bytes: int, *, keep: Keep = "start") -> str:
    """Give a text as it is stored; one in which characters were replaced says so at its end."""
    window = text[:max_bytes] if keep == "start" else text[-max_bytes:]
    if _UNSTORABLE.search(window) is None:
        return storable(text, max_bytes, keep=keep)[0]
    return storable(text, max_bytes - len(REPLACED_MARK.encode()), keep=keep)[0] + REPLACED_MARK


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Give the errors inside an exception group, however deep, or the error itself."""
    pending = [error]
    while pending:
        current = pending.pop()
        if isinstance(current, BaseExceptionGroup):
            pending.extend(reversed(current.exceptions))
        else:
            yield _as_raised(current)


def _as_raised(error: BaseException) -> BaseException:
    """Give what a child task raised in place of its stand-in."""
    return error.__cause__ if isinstance(error, BodyExit) and error.__cause__ is not None else error


def _kind(error: BaseException) -> str:
    try:
        return str(type(error).__qualname__)
    except BaseException:  # noqa: BLE001 - a metaclass of the author's own
        return "BaseException"


def _message(error: BaseException) -> str:
    try:
        if isinstance(error, OutlastError):
            return f"{error.cause} (fix: {error.fix})"
        text = str(error)
    except BaseException as inner:  # noqa: BLE001 - `__str__` is the author's
        return f"the message cannot be had: __str__ raised {_kind(inner)}"
    if not isinstance(error, BaseExceptionGroup):
        return text
    named = [f"{_kind(leaf)}: {_message(leaf)[:200]}" for leaf in islice(leaves(error), _LEAVES_NAMED)]
    return f"{text[:1000]}: {'; '.join(named)}"


def _trace(error: BaseException) -> str:
    try:
        described = traceback.TracebackException(type(error), error, _from_body(error.__traceback__))
        return "".join(described.format())
    except BaseException as inner:  # noqa: BLE001 - the texts in it are the author's
        return f"the traceback cannot be had: rendering it raised {_kind(inner)}"


def _from_body(frames: TracebackType | None) -> TracebackType | None:
    """Leave out the worker's own frames at the top: the trace begins in the body."""
    current = frames
    while current is not None and current.tb_frame.f_code.co_filename.startswith(_OWN_FOLDER):
        current = current.tb_next
    return current or frames
