"""Errors of steps that the next attempt would only meet again: kinds of wider errors, by the same codes, and terminal.

An attempt that ends with one is the job's last until an operator retries it. Raised by steps and suspensions.
"""

from __future__ import annotations

from .errors import JobDuplicate, RequestInvalid, StepTimeout


class StepInvalid(RequestInvalid):
    """A step is asked for in a way or a place that cannot be: the code has to be mended."""

    terminal = True


class CallCycle(JobDuplicate):
    """A call would be answered by a job that waits, itself or through others, for the caller: none would ever end."""

    terminal = True


class EventMissing(StepTimeout):
    """An event that is required did not come in time. A retry by hand waits for it anew."""

    terminal = True
