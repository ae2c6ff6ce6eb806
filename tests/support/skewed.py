"""A process of ours whose wall clock is wrong: `python -m tests.support.skewed worker …` is `python -m app worker …`.

SKEW_FILE names a file with the seconds by which the process's clock is ahead, read anew at each look: who writes to it
sets the clock while the process runs. What a library written in C reads by itself is not moved; of those, ours ask for
ids alone, which are moved here. Monotonic clocks go on as they do on a machine whose clock is set.
"""

from __future__ import annotations

import ctypes
import datetime as dt
import gc
import os
import time
from pathlib import Path
from typing import Any
from uuid import UUID

from uuid_utils import compat

SKEW_FILE = "SKEW_FILE"
_BILLION = 1_000_000_000
_TOLERATED_SECONDS = 5.0


def set_clock(path: Path, seconds: float) -> None:
    """Set the clock of whoever was given this file; it is never seen half written."""
    draft = path.with_suffix(".draft")
    draft.write_text(str(seconds))
    draft.replace(path)


def skew(path: Path) -> None:
    """Let this process live by the file, before anything of the product is imported."""
    time_ns, now, uuid7 = time.time_ns, dt.datetime.now, compat.uuid7

    def ahead() -> float:
        return float(path.read_text())

    def skewed_ns() -> int:
        return time_ns() + int(ahead() * _BILLION)

    def skewed_now(_cls: type, tz: dt.tzinfo | None = None) -> dt.datetime:
        return now(tz) + dt.timedelta(seconds=ahead())

    def skewed_id(*, nanoseconds: int | None = None) -> UUID:
        return uuid7(nanoseconds=skewed_ns() if nanoseconds is None else nanoseconds)

    patched: Any = time
    patched.time_ns, patched.time = skewed_ns, lambda: skewed_ns() / _BILLION
    patched = compat
    patched.uuid7 = skewed_id
    # A class of C takes no new attributes; who imports it is to have them all the same.
    gc.get_referents(dt.datetime.__dict__)[0]["now"] = classmethod(skewed_now)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(dt.datetime))
    told = dt.datetime.now(dt.UTC).timestamp() - time_ns() / _BILLION
    assert abs(told - ahead()) < _TOLERATED_SECONDS, "this interpreter's clock cannot be set"


if __name__ == "__main__":
    skew(Path(os.environ[SKEW_FILE]))
    from app.cli.main import main

    main()
