"""The job types a test has to do with, and the client that learns of them.

Whatever is enqueued through the kit's client, in tests and in bodies, becomes known to the kit's workers: nothing has
to be registered. Owned by `env`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from types import ModuleType
from typing import Any, TypeAlias

from ..domain.errors import SettingsInvalid
from ..domain.job import DEFAULT_QUEUE, Enqueued, JobId, NewJob
from ..drivers.protocol import JobDriver
from ..jobs.admission import Admission
from ..jobs.client import Client
from ..jobs.handle import JobHandle
from ..jobs.jobtype import JobType
from ..jobs.registry import AnyHandle, Registry
from ..jobs.request import EnqueueRequest

Jobs: TypeAlias = Iterable[AnyHandle | ModuleType]
OnStored: TypeAlias = Callable[[JobId], Awaitable[None]]


class Known:
    """The handles and queues seen so far. `changes` counts how often there were more."""

    def __init__(self, jobs: Jobs = ()) -> None:
        self._handles: dict[str, AnyHandle] = {}
        self.queues: set[str] = {DEFAULT_QUEUE}
        self.changes = 0
        for one in jobs:
            found = list(vars(one).values()) if isinstance(one, ModuleType) else [one]
            for handle in found:
                if isinstance(handle, JobHandle):
                    self.learn(handle)
                elif not isinstance(one, ModuleType):
                    raise SettingsInvalid(
                        f"{one!r} is neither a job nor a module", fix="name functions declared with @job, or modules"
                    )

    def learn(self, handle: AnyHandle, queue: str | None = None) -> None:
        """Know a job type, and the queue one of its jobs is in.

        Raises:
            JobNameTaken: another one of that name is known.
        """
        before = self._handles.get(handle.name)
        if before is not handle:
            Registry([*self._handles.values(), handle])
            self._handles[handle.name] = handle
            self.changes += 1
        for one in (handle.policy.queue, queue or handle.policy.queue):
            if one not in self.queues:
                self.queues.add(one)
                self.changes += 1

    def handle(self, name: str) -> AnyHandle | None:
        """Give the handle of a name."""
        return self._handles.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        """Give the names of all job types seen."""
        return tuple(self._handles)

    def registry(self) -> Registry:
        """Give what a worker is made with."""
        return Registry(self._handles.values())


class KitClient(Client):
    """A client that tells the kit what passes through it.

    `on_limit` hears after how long a job is ended if it has not begun, or is not done; `on_stored` what was enqueued.
    """

    def __init__(
        self,
        driver: JobDriver,
        *,
        admission: Admission,
        known: Known,
        on_limit: Callable[[timedelta], None],
        on_stored: OnStored,
    ) -> None:
        super().__init__(driver, admission=admission, enqueued_by="test")
        self._known = known
        self._on_limit = on_limit
        self._on_stored = on_stored

    def admit(self, job_type: JobType, request: EnqueueRequest) -> NewJob:
        """Admit a job, and know its type from then on."""
        admitted = super().admit(job_type, request)
        if isinstance(job_type.handle, JobHandle):
            self._known.learn(job_type.handle, admitted.queue)
        for limit in (job_type.deadline, job_type.max_queue_time):
            if limit is not None:
                self._on_limit(limit)
        return admitted

    async def enqueue(self, job_type: JobType, request: EnqueueRequest) -> Enqueued:
        """Enqueue one job."""
        answer = await super().enqueue(job_type, request)
        await self._on_stored(answer.id)
        return answer

    async def enqueue_many(self, job_type: JobType, requests: Iterable[EnqueueRequest]) -> tuple[Enqueued, ...]:
        """Enqueue many."""
        answers = await super().enqueue_many(job_type, requests)
        for answer in answers:
            await self._on_stored(answer.id)
        return answers


def payload_of(handle: AnyHandle, payload: Any) -> Any:  # noqa: ANN401 - whatever the handle takes
    """Give a payload as a handle takes it: None stands for one without fields."""
    return {} if payload is None and handle.signature.payload_parameter is None else payload
