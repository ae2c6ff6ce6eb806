"""What Kubernetes does to a pod, replayed with processes: endpoints, preStop, SIGTERM, and SIGKILL when grace is over.

Deleting a pod starts three things at once: it leaves the endpoints, though not everywhere at the same instant, its
preStop runs, and its grace begins. Numbers are read from the manifests and scaled by the drain of the tests.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from tests.support.processes import Fleet, Service, eventually


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Seconds of a pod's end: how long others still send to it, its preStop, and all it has."""

    lag: float
    pre_stop: float
    grace: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a pod ended. `took` is seconds from its deletion."""

    code: int
    was_killed: bool
    took: float


@dataclass(slots=True, eq=False)
class Pods:
    """The pods of one Deployment, and who of them gets traffic."""

    fleet: Fleet
    role: str
    timeline: Timeline
    endpoints: list[Service] = field(default_factory=list)

    async def add(self) -> Service:
        """Start a pod and send traffic to it once it is ready."""
        pod = self.fleet.start(self.role, *self._ports(), OUTLAST_ADMIN_BIND="127.0.0.1:0")
        await pod.ready()
        self.endpoints.append(pod)
        return pod

    async def delete(self, pod: Service) -> Ended:
        """Take a pod away as a kubelet does."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._leave_endpoints(pod))
            ended = group.create_task(self._stop(pod, began))
        return ended.result()

    async def _leave_endpoints(self, pod: Service) -> None:
        await asyncio.sleep(self.timeline.lag)
        self.endpoints.remove(pod)

    async def _stop(self, pod: Service, began: float) -> Ended:
        await asyncio.sleep(self.timeline.pre_stop)
        pod.terminate()
        deadline = began + self.timeline.grace
        await eventually(lambda: pod.code is not None or time.monotonic() >= deadline, f"the grace of {pod.name} ends")
        was_killed = pod.code is None
        if was_killed:
            pod.kill()
        return Ended(code=await pod.gone(), was_killed=was_killed, took=time.monotonic() - began)

    def _ports(self) -> tuple[str, ...]:
        return ("--port", "0") if self.role == "api" else ()
