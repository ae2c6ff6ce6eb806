"""Where log lines go: one handler on the root logger, JSON or console, for structlog and for the standard library.

It renders and escapes; it words nothing (`telemetry` does) and decides nothing. Text from payloads, names and errors
can hold line breaks and terminal codes, so every control character leaves here escaped: one event is one record. The
texts of exceptions never leave at all.
Called by the composition root.
"""

from __future__ import annotations

import contextvars
import logging
import re
import sys
import traceback
from contextlib import suppress
from enum import StrEnum
from typing import TextIO, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

_ROOT_NAME = "outlast"
_LONGEST_VALUE = 2_000  # characters of one field
_LONGEST_TRACE = 32_768  # characters of a traceback or stack
_MEMBERS = 5  # of an exception group that are shown
_DEEPEST_GROUP = 3

# C0 and C1, the line and paragraph separators, the bidirectional overrides, and halves of surrogate pairs.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_BLOCKS = frozenset({"exception", "stack", "blocked_at"})


class LogFormat(StrEnum):
    """How records are written."""

    JSON = "json"
    CONSOLE = "console"


class OutlastHandler(logging.StreamHandler[TextIO]):
    """The one handler, found again by its class so that setting up twice does not print twice."""


def escaped(text: str) -> str:
    r"""Give the text with every control character as `\xNN` or `\uNNNN`."""
    return _CONTROL.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"  # noqa: PLR2004 - one byte


def open_log(*, log_format: LogFormat, level: str, stream: TextIO) -> FilteringBoundLogger:
    """Set up the process's log and give the logger that `Telemetry` speaks through.

    Idempotent: the handler of an earlier call is replaced. The level is a name of the standard library's.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    handler = OutlastHandler(stream)
    handler.setFormatter(_formatter(log_format))
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, OutlastHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(number)
    logging.captureWarnings(capture=True)
    logger = structlog.wrap_logger(
        logging.getLogger(_ROOT_NAME),
        processors=[*_shared(), structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        context_class=dict,
    )
    return cast("FilteringBoundLogger", logger)


def flush_log() -> None:
    """Write out what handlers and standard streams still hold, before a process ends without its own teardown.

    Bodies print too. A stream nobody reads can block: call it where that is bounded.
    """
    for handler in logging.getLogger().handlers:
        handler.flush()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, broken, or not there
            stream.flush()


class Correlator:
    """Puts named values on every line that is logged from the current context on, whoever logs it.

    For what is put there once a job: the variables behind the names are looked up once.
    """

    def __init__(self, *names: str) -> None:
        learnt = contextvars.copy_context().run(structlog.contextvars.bind_contextvars, **dict.fromkeys(names, ""))
        self._set = tuple(learnt[name].var.set for name in names)

    def put(self, *values: object) -> None:
        """Put the values, in the order of the names."""
        for set_to, value in zip(self._set, values, strict=True):
            set_to(value)


def _shared() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def _formatter(log_format: LogFormat) -> logging.Formatter:
    renderer: Processor = (
        structlog.processors.JSONRenderer(sort_keys=False)
        if log_format is LogFormat.JSON
        else structlog.dev.ConsoleRenderer(colors=False, pad_event_to=24)
    )
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*_shared(), structlog.stdlib.add_logger_name],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.StackInfoRenderer(),
            _textless_exception,
            _bounded_for(log_format),
            renderer,
        ],
    )


def _textless_exception(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Render `exc_info` as frames and kinds: what an exception says can hold a payload or a secret."""
    info = event.pop("exc_info", None)
    error = sys.exc_info()[1] if info is True else info[1] if isinstance(info, tuple) else info
    if isinstance(error, BaseException):
        event["exception"] = trace_of(error)
    return event


def trace_of(error: BaseException, *, depth: int = 0) -> str:
    """Give the frames and the kind of an error, of what caused it and of what a group holds, without their texts."""
    parts: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        code = getattr(current, "code", None)
        kind = type(current).__qualname__ + (f" [{code}]" if isinstance(code, str) else "")
        frames = "".join(traceback.format_tb(current.__traceback__)).rstrip("\n")
        parts.append((f"{frames}\n{kind}" if frames else kind) + _members(current, depth))
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return "\n--- caused\n".join(reversed(parts))


def _members(error: BaseException, depth: int) -> str:
    """Give the traces of a group's first members: where a task group fails, only they tell why."""
    if not isinstance(error, BaseExceptionGroup) or depth == _DEEPEST_GROUP:
        return ""
    found = (trace_of(member, depth=depth + 1) for member in error.exceptions[:_MEMBERS])
    return "".join(f"\n--- inside\n{trace}" for trace in found)


def _bounded_for(log_format: LogFormat) -> Processor:
    """Make the processor that bounds and escapes; JSON escapes by itself, except what its consumers render."""

    def bounded(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {escaped(key): _bounded(key, value, log_format) for key, value in event.items()}

    return bounded


def _bounded(key: str, value: object, log_format: LogFormat) -> object:
    match value:
        case str() if key in _BLOCKS:
            return _block(value[-_LONGEST_TRACE:], log_format)
        case str():
            return escaped(value[:_LONGEST_VALUE])
        case bool() | int() | float() | None:
            return value
        case list() | tuple():
            return [_bounded(key, item, log_format) for item in value]
        case _:
            return escaped(str(value)[:_LONGEST_VALUE])


def _block(text: str, log_format: LogFormat) -> str:
    """Keep a traceback's lines apart, indented on a console so that none can pass for a record of its own."""
    lines = [escaped(line) for line in text.split("\n")]
    return ("\n" if log_format is LogFormat.JSON else "\n    | ").join(lines)
