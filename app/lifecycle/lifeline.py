"""The link between a worker process and the parent that started it: one says where it is, the other that it lives.

A socket that both hold one end of. The child writes one line; the parent writes nothing, and when it is gone, however
it ended, the child's end says so and the child leaves in order. Used by the command line and by `children`.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress


class Lifeline:
    """A child's end, from the number it was handed."""

    def __init__(self, number: int) -> None:
        os.set_inheritable(number, False)  # noqa: FBT003 - what it starts must not hold its parent's word
        self._link = socket.socket(fileno=number)

    def announce(self, admin: str) -> None:
        """Tell the parent where this process's admin listener is."""
        with suppress(OSError):  # nobody hears it any more, and the watch says so
            self._link.sendall(json.dumps({"admin": admin}).encode() + b"\n")

    def watch(self, on_gone: Callable[[str], object]) -> None:
        """Call `on_gone` with the reason, in a thread, when the parent is gone."""
        threading.Thread(target=self._wait, args=(on_gone,), name="outlast.lifeline", daemon=True).start()

    def _wait(self, on_gone: Callable[[str], object]) -> None:
        with suppress(OSError):
            while self._link.recv(1):
                pass
        on_gone("its parent is gone")


class ParentEnd:
    """A parent's end for one child; `child_number` is what the child is handed, until `handed_over`."""

    def __init__(self) -> None:
        self._link, self._childs = socket.socketpair()
        self._link.setblocking(False)  # noqa: FBT003 - same
        self._said = b""

    @property
    def child_number(self) -> int:
        """Give the number of the child's end."""
        return self._childs.fileno()

    def fileno(self) -> int:
        """Give the number of this end, to be waited on."""
        return self._link.fileno()

    def handed_over(self) -> None:
        """Keep only this end: the child has its own."""
        self._childs.close()

    def heard(self) -> str | None:
        """Give where the child is once it has said so."""
        with suppress(BlockingIOError, OSError):
            self._said += self._link.recv(4096)
        line, newline, _ = self._said.partition(b"\n")
        return str(json.loads(line)["admin"]) if newline else None

    def close(self) -> None:
        """Let the child go; one that lives takes it for this process's end."""
        self._link.close()
        self._childs.close()
