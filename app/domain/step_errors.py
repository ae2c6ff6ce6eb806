"""Errors of steps: kinds of wider errors, by the same codes.

An attempt that ends with a terminal one is the job's last until an operator retries it: the next would only meet it
again. One that a cut transaction ends is not counted. Raised by steps and suspensions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from .errors import DriverUnavailable, JobDuplicate, RequestInvalid, StepTimeout
from .job import JobId, NewJob


class StepInvalid(RequestInvalid):
    """A step is asked for in a way or a place that cannot be: the code has to be mended."""

    terminal = True


class CallCycle(JobDuplicate):
    """A call would be answered by a job that waits, itself or through others, for the caller: none would ever end.

    Details `existing_id`, the job called, `step`, and `cycle`: each of these waits for the next, the caller is last.
    """

    terminal = True


class EventMissing(StepTimeout):
    """An event that is required did not come in time. A retry by hand waits for it anew."""

    terminal = True


class TransactionCut(DriverUnavailable):
    """The database went away under a step's transaction. Nothing is written, unless it was on its way to commit."""


def waiting_chain(callers: Mapping[JobId, Sequence[JobId]], called: JobId, caller: JobId) -> tuple[JobId, ...] | None:
    """Give the jobs from `called` to `caller` each of which waits for the next; None when it does not wait for that.

    `callers` gives, by a job, those that wait for it.
    """
    chains: dict[JobId, tuple[JobId, ...]] = {caller: (caller,)}
    ahead = deque([caller])
    while ahead and called not in chains:
        job = ahead.popleft()
        for above in callers.get(job, ()):
            if above not in chains:
                chains[above] = (above, *chains[job])
                ahead.append(above)
    return chains.get(called)


def called_in_circle(step: str, child: NewJob, chain: Sequence[JobId]) -> CallCycle:
    """Give the error of a call that is answered by the first of a chain of jobs, the last of which makes the call."""
    called, *between, caller = (*chain, chain[-1]) if len(chain) == 1 else chain
    if called == caller:
        what = "the very job it is part of"
    else:
        through = "".join(f"job {one}, which waits for " for one in between)
        what = f"job {called}, which waits for {through}this job"
    return CallCycle(
        f"step {step!r} calls {child.name} with the idempotency key {child.key!r}, and that is {what}:"
        " none of them would ever end",
        fix="give the child a key of its own, with idempotency_key=, or do not wait for it: ctx.enqueue",
        existing_id=str(called),
        step=step,
        cycle=[str(one) for one in chain],
    )
