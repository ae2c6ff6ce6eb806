"""Server-sent events from bytes: a parser that is fed what arrives and gives the events that are whole.

It owns the format (WHATWG HTML, section 9.2) and nothing else: what events mean is `following`'s.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SentEvent:
    """One event: its name, its data, and the last id seen so far."""

    name: str
    data: str
    last_id: str


class EventParser:
    """Reads one stream, from its beginning. `last_id` and `retry_ms` are what it was told so far."""

    def __init__(self, last_id: str = "") -> None:
        self.last_id = last_id
        self.retry_ms: int | None = None
        self._text = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
        self._rest = ""
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[SentEvent]:
        """Take bytes in; give the events they complete. Half an event at the end of a stream is never given."""
        text = self._rest + self._text.decode(chunk)
        # A CR at the end may be half a line break.
        held = "\r" if text.endswith("\r") else ""
        *lines, rest = text.removesuffix(held).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._rest = rest + held
        for line in lines:
            event = self._take(line)
            if event is not None:
                yield event

    def _take(self, line: str) -> SentEvent | None:
        if line == "":
            return self._dispatch()
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "event":
                self._name = value
            case "data":
                self._data.append(value)
            case "id" if "\0" not in value:
                self.last_id = value
            case "retry" if value.isascii() and value.isdecimal():
                self.retry_ms = int(value)
        return None

    def _dispatch(self) -> SentEvent | None:
        name, data = self._name, self._data
        self._name, self._data = "", []
        return SentEvent(name=name or "message", data="\n".join(data), last_id=self.last_id) if data else None
