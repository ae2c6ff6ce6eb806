"""The garbage collector of a long-lived process: what its start made is set aside, and collections are rarer.

Every job in hand is a few dozen objects that die by themselves; a collector with the interpreter's defaults walks the
whole program for every thousand of them, a quarter of a busy worker's time. Called once, by whoever composes a process.
"""

from __future__ import annotations

import gc

_YOUNG = 10_000  # allocations between collections of the young; the older two generations every 20 of the one before
_OLDER = 20


def settle_heap() -> None:
    """Collect once, set aside what is left, and collect less often from now on; process-wide, harmless to repeat."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _OLDER, _OLDER)
