"""The client for services and scripts that speak to Outlast over HTTP: `Client`, and `AsyncClient` to be awaited.

Importing it brings in neither the store nor the web framework; it knows of the application only pure values.
"""

from ..domain.errors import JobTimeout
from ..domain.state import State
from .answers.runs import Attempt, Ended, Explained, Line, Step
from .answers.shown import CancelledJob, EnqueuedJob, Job, JobError, JobSummary, Progress
from .asynchronous import AsyncClient
from .calls.queues import UNCHANGED
from .following import JobEvent
from .problem import ProblemError, UnreachableError
from .sync import Client
from .tries import Patience

__all__ = [
    "UNCHANGED",
    "AsyncClient",
    "Attempt",
    "CancelledJob",
    "Client",
    "Ended",
    "EnqueuedJob",
    "Explained",
    "Job",
    "JobError",
    "JobEvent",
    "JobSummary",
    "JobTimeout",
    "Line",
    "Patience",
    "ProblemError",
    "Progress",
    "State",
    "Step",
    "UnreachableError",
]
