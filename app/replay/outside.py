"""Keeps code under replay from the world: sockets and new processes are refused while a replay runs.

What a step did is on record; anything else that a body does, it would do for real. The interpreter's own audit tells of
each such call, however the code came by it; a library that connects by C code of its own is not seen, and nothing that
goes over a connection which was open before.
"""

from __future__ import annotations

import multiprocessing.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

_Audited: TypeAlias = tuple[Any, ...]


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


def _sends(args: _Audited) -> str:
    return "sends over a socket" if args[1] is None else f"sends to {args[1]!r}"


def _looks_up(args: _Audited) -> str:
    return f"looks up {args[0]!r}"


def _starts(args: _Audited) -> str:
    return f"starts the process {args[1]!r}"


def _forks(_args: _Audited) -> str:
    return "forks its process"


_WAYS: Mapping[str, Callable[[_Audited], str]] = {
    "socket.connect": lambda args: f"connects to {args[1]!r}",
    "socket.bind": lambda args: f"binds a socket to {args[1]!r}",
    "socket.sendto": _sends,
    "socket.sendmsg": _sends,
    "socket.getaddrinfo": _looks_up,
    "socket.gethostbyname": _looks_up,  # also `gethostbyname_ex`
    "socket.gethostbyaddr": _looks_up,
    "socket.getnameinfo": _looks_up,
    "subprocess.Popen": _starts,  # also `os.popen`
    "os.posix_spawn": _starts,
    "os.system": lambda args: f"starts the process {os.fsdecode(args[0])!r}",
    "os.exec": lambda args: f"becomes the process {args[1]!r}",
    "os.fork": _forks,  # also `os.spawnv` and its kin, and what `multiprocessing` forks
    "os.forkpty": _forks,
}


class _Hook:
    """The audit hook. A process has one for good, as the interpreter takes none back: it is idle between replays."""

    def __init__(self) -> None:
        self.refusals: Refusals | None = None
        self._ways = _WAYS  # its own, as it is called until the interpreter's very end, when modules are empty
        self._is_added = False

    def __call__(self, event: str, args: _Audited) -> None:
        """Refuse what reaches outside while a replay runs."""
        if self.refusals is not None and (say := self._ways.get(event)) is not None:
            raise self.refusals.refuse(say(args))

    def add(self) -> None:
        """Have the interpreter call this from now on."""
        if not self._is_added:
            sys.addaudithook(self)
            self._is_added = True


_hook = _Hook()


@contextmanager
def nothing_outside(refusals: Refusals) -> Iterator[None]:
    """Refuse sockets and new processes in all threads while the context is open."""

    def spawns(path: bytes, args: Sequence[Any], passfds: Sequence[int]) -> int:
        del path, passfds
        raise refusals.refuse(f"starts the process {args!r}")

    _hook.add()
    before, spawn = _hook.refusals, multiprocessing.util.spawnv_passfds
    # What `multiprocessing` starts without a fork is told to no audit.
    multiprocessing.util.spawnv_passfds = spawns
    _hook.refusals = refusals
    try:
        yield
    finally:
        _hook.refusals = before
        multiprocessing.util.spawnv_passfds = spawn
