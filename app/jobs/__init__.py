"""What a job author imports. Importing it, or a module that declares jobs, registers nothing and opens nothing."""

from ..domain.outbox import StagedJob
from ..domain.retry import RetryPolicy
from ..domain.webhook import Callback
from ..steps.api import Steps
from .client import Client, use_client
from .context import JobContext
from .describe import describe, describe_jobs
from .exits import RetryAfter, Snooze, Terminal
from .handle import JobHandle, job
from .limits import Limit, Rate
from .purge import purge
from .registry import Registry
from .results import EnqueuedJob, JobRef
from .schedule import Schedule, schedule

__all__ = [
    "Callback",
    "Client",
    "EnqueuedJob",
    "JobContext",
    "JobHandle",
    "JobRef",
    "Limit",
    "Rate",
    "Registry",
    "RetryAfter",
    "RetryPolicy",
    "Schedule",
    "Snooze",
    "StagedJob",
    "Steps",
    "Terminal",
    "describe",
    "describe_jobs",
    "job",
    "purge",
    "schedule",
    "use_client",
]
