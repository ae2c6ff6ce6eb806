"""How a run gives its worker back: an exception that passes through the body, and nothing that a body should catch.

Raised where a step has to wait; what the run waits for is kept by its recorder. The worker turns it into an outcome.
"""

from __future__ import annotations


class Suspension(BaseException):
    """The run waits for a time, an event or a child; the body is called again when that has come.

    Derives from `BaseException` so that an `except Exception` in a body cannot eat it.
    """
