"""Whether somebody waits for what is being read: a request of the API, a page. Said at the edge, heeded by the store.

Reads of many rows end early for those who wait, and keep to a share of the connections; workers, relays and the
command line read the same and take their time. A request's tasks inherit it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# What a read of many rows may take, the wait for its turn included.
LOOK_SECONDS = 2.0

_is_waited_for = ContextVar("outlast_is_waited_for", default=False)


@contextmanager
def waited_for(*, is_so: bool = True) -> Iterator[None]:
    """Say, while the context is open, that somebody waits for what is read in it; or that it may take its time."""
    token = _is_waited_for.set(is_so)
    try:
        yield
    finally:
        _is_waited_for.reset(token)


def is_waited_for() -> bool:
    """Say whether somebody does."""
    return _is_waited_for.get()
