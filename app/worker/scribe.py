"""Writes down what bodies say of their runs: lines and progress, gathered and stored a few times a second.

Bodies tell it from any thread and at any rate, and never wait for the store. What a run has said is stored before its
attempt is settled, under the claim it still holds; what the store does not take is dropped and logged. One task of the
worker runs `run`.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from contextlib import suppress

from ..domain.job import ClaimToken
from ..domain.step import LOG_LINE_MOST, MAX_LOG_LINES, PROGRESS_MESSAGE_MOST, NewNotes
from ..domain.text import storable
from ..drivers.protocol import JobDriver
from ..lifecycle.tasks import first_of
from ..observability.telemetry import Telemetry

EVERY_SECONDS = 0.25
_BYTES_A_CHARACTER = 4  # at most, in UTF-8: texts are bounded in characters


class _Said:
    """What one run has said since it was last written down."""

    __slots__ = ("lines", "progress", "token")

    def __init__(self, token: ClaimToken) -> None:
        self.token = token
        self.lines: list[str] = []
        self.progress: tuple[float, str | None] | None = None


class Scribe:
    """The scribe of one life of a worker; made on its loop."""

    def __init__(self, *, driver: JobDriver, telemetry: Telemetry) -> None:
        self._driver = driver
        self._telemetry = telemetry
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._said: dict[int, _Said] = {}  # by fence
        self._waiting: list[Callable[[], object]] = []  # settles that come after what is being said
        self._came = asyncio.Event()
        self._must_hurry = asyncio.Event()
        self._over = asyncio.Event()
        self._writing: frozenset[int] = frozenset()

    def log(self, token: ClaimToken, message: str) -> None:
        """Take a line. Any thread."""
        text = _bounded(message, LOG_LINE_MOST)
        with self._lock:
            said = self._of(token)
            if len(said.lines) < MAX_LOG_LINES:
                said.lines.append(text)

    def progress(self, token: ClaimToken, value: float, message: str | None) -> None:
        """Take how far a run has come; what is no number from 0 to 1 is brought there. Any thread."""
        bounded = _part(value)
        text = None if message is None else _bounded(message, PROGRESS_MESSAGE_MOST)
        with self._lock:
            self._of(token).progress = (bounded, text)

    def owes(self, token: ClaimToken) -> bool:
        """Say whether a claim's run has said what is not written down yet."""
        if not self._said and not self._writing:
            return False
        with self._lock:
            return (token.fence in self._said or token.fence in self._writing) and not self._over.is_set()

    def after(self, settle: Callable[[], object]) -> None:
        """Call `settle` once all that was said by now is written down."""
        self._waiting.append(settle)
        self._must_hurry.set()
        self._came.set()

    def end(self) -> None:
        """End: what is said from now on is not written down."""
        self._over.set()
        self._came.set()

    async def run(self) -> None:
        """Write down what comes until told to end."""
        while not self._over.is_set():
            await self._came.wait()
            self._came.clear()
            if not self._must_hurry.is_set():
                await first_of(self._must_hurry, self._over, within=EVERY_SECONDS)
            await self._write()
        self._settle(self._waiting)

    async def _write(self) -> None:
        """Write down all there is, and let the settles go that came before it was taken."""
        self._must_hurry.clear()
        waiting, self._waiting = self._waiting, []
        with self._lock:
            taken, self._said = self._said, {}
        self._writing = frozenset(taken)
        try:
            if taken:
                await self._driver.note([NewNotes(one.token, tuple(one.lines), one.progress) for one in taken.values()])
        except Exception as error:  # noqa: BLE001 - said; a body never fails for its notes
            self._telemetry.store_call_failed("note", error)
        finally:
            self._writing = frozenset()
            self._settle(waiting)

    def _settle(self, waiting: list[Callable[[], object]]) -> None:
        for settle in waiting:
            settle()

    def _of(self, token: ClaimToken) -> _Said:
        """Give where a run's words are gathered, and have them written down soon."""
        said = self._said.get(token.fence)
        if said is None:
            said = self._said[token.fence] = _Said(token)
            with suppress(RuntimeError):  # the loop has closed: nobody writes any more
                self._loop.call_soon_threadsafe(self._came.set)
        return said


def _part(value: object) -> float:
    """Give a number from 0 to 1, whatever was said: a body does not fail for it."""
    try:
        number = float(value)  # type: ignore[arg-type]  # what is no number is met here
    except Exception:  # noqa: BLE001 - an object of the author's own may raise anything
        return 0.0
    return 0.0 if math.isnan(number) else min(max(number, 0.0), 1.0)


def _bounded(text: object, most: int) -> str:
    """Give a text as it can be stored, in at most so many characters."""
    try:
        said = str(text)
    except Exception:  # noqa: BLE001 - as above
        said = f"<{type(text).__name__}>"
    return storable(said[:most], most * _BYTES_A_CHARACTER)[0]
