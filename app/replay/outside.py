"""Keeps code under replay from the world: connections and new processes are refused while a replay runs.

What a step did is on record; anything else that a body does, it would do for real. Refused are the ways that Python's
own sockets and processes have; a library that connects by C code of its own is not seen.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

_ABSENT = object()


class OutsideError(BaseException):
    """The code reaches outside of its steps. A `BaseException`, so that no fallback of the code goes on from it."""


class Refusals:
    """What was refused while one replay ran, in order: what the code was about to do."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def refuse(self, what: str) -> OutsideError:
        """Note a refusal, and give what to raise."""
        self.said.append(what)
        return OutsideError(what)


@contextmanager
def nothing_outside(refusals: Refusals) -> Iterator[None]:
    """Refuse connections and new processes in all threads while the context is open."""

    def connects(_socket: object, address: object, *_: object) -> None:
        raise refusals.refuse(f"connects to {address!r}")

    def sends(_socket: object, _data: object, *where: object) -> None:
        raise refusals.refuse(f"sends to {where[-1] if where else None!r}")

    def looks_up(host: object, *_: object, **__: object) -> None:
        raise refusals.refuse(f"looks up {host!r}")

    def starts(_process: object, args: object, *_: object, **__: object) -> None:
        raise refusals.refuse(f"starts the process {args!r}")

    ways: tuple[tuple[Any, str, Callable[..., None]], ...] = (
        (socket.socket, "connect", connects),
        (socket.socket, "connect_ex", connects),
        (socket.socket, "sendto", sends),
        (socket, "getaddrinfo", looks_up),
        (socket, "gethostbyname", looks_up),
        (socket, "gethostbyname_ex", looks_up),
        (subprocess.Popen, "__init__", starts),
    )
    with ExitStack() as stack:
        for owner, name, refused in ways:
            stack.enter_context(_replaced(owner, name, refused))
        yield


@contextmanager
def _replaced(owner: Any, name: str, by: Callable[..., None]) -> Iterator[None]:  # noqa: ANN401 - a class or a module
    before = vars(owner).get(name, _ABSENT)
    setattr(owner, name, by)
    try:
        yield
    finally:
        if before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
