"""How the command line loads the product: at once, and for good."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Load modules within without a look for garbage, and never look through them again.

    A thousand modules are no garbage: the looks are a sixth of the time a process needs to start, and a long pause in
    every full look of a process that stays.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
