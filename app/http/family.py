"""What a parent's admin listener shows of its children: their readiness, their metrics, their drains, each as one.

Asks each child's own admin listener, at the same time, and waits a moment only. Used in the listener's threads; made by
`parent`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

from ..control.render import Document
from ..lifecycle.children import ChildAt
from ..lifecycle.status import DrainPhase, DrainState, DrainStatus
from ..observability.summed import SummedMetrics
from .probes import Readiness, Trouble

_ANSWER_SECONDS = 1.5
_AT_ONCE = 16
_COUNTS = ("in_flight_count", "completed", "interrupted", "abandoned", "other")
_MOST_SHOWN = 200
_ORDER = [phase.value for phase in DrainPhase]

Children = Callable[[], Sequence[ChildAt]]
Answer = tuple[int, bytes]


class Family:
    """The children of one parent, asked over their admin listeners.

    `wanted` is how many are to run, `status` is the parent's own drain.
    """

    def __init__(self, children: Children, *, wanted: Callable[[], int], status: Callable[[], DrainStatus]) -> None:
        self._children = children
        self._wanted = wanted
        self._status = status
        self._metrics = SummedMetrics()
        self._drains: dict[int, dict[str, Any]] = {}  # the last one seen of each, also of those that are gone

    def readiness(self) -> Readiness:
        """Say whether every child is ready."""
        if self._status().state is not DrainState.RUNNING:
            return Readiness(trouble=Trouble.DRAINING)
        answers = self._ask("/readyz")
        if len(answers) < self._wanted():
            return Readiness(trouble=Trouble.STARTING)
        bad = next((body for status, body in answers.values() if status != HTTPStatus.OK), None)
        return Readiness() if bad is None else Readiness(trouble=Trouble(json.loads(bad)["reason"]))

    def metrics(self) -> bytes:
        """Give the sum of the children's metrics."""
        answers = self._ask("/metrics")
        texts = {pid: body.decode() for pid, (status, body) in answers.items() if status == HTTPStatus.OK}
        self._metrics.show(texts, living=[child.pid for child in self._children()])
        return self._metrics.render()

    def fleet(self) -> Document | None:
        """Give what any child knows of the fleet."""
        answers = self._ask("/v1/drain?scope=fleet")
        found = next((body for status, body in answers.values() if status == HTTPStatus.OK), None)
        return None if found is None else dict(json.loads(found))

    def drain(self) -> Document:
        """Give the children's drains as one: counts are sums, and the phase is that of the child that is least far."""
        for pid, (status, body) in self._ask("/v1/drain").items():
            if status == HTTPStatus.OK:
                self._drains[pid] = json.loads(body)
        living = {child.pid for child in self._children()}
        for pid in [pid for pid, one in self._drains.items() if pid not in living and one["phase"] is None]:
            self._drains.pop(pid, None)  # crashed while nobody drained: another has its place
        own, seen = self._status(), list(self._drains.items())
        drains = [one | ({} if pid in living else {"in_flight": [], "in_flight_count": 0}) for pid, one in seen]
        held = [run for one in drains for run in one["in_flight"]]
        leaving = [one for pid, one in seen if pid in living and one["phase"] is not None]
        gone = DrainPhase.CLOSE.value if own.state is not DrainState.RUNNING else None
        return {
            "state": own.state.value,
            "role": "worker",
            "phase": min((one["phase"] for one in leaving), key=_ORDER.index, default=gone),
            "reason": own.reason,
            "signal": own.signal,
            "started_at": own.started_at,
            "deadline_at": max((one["deadline_at"] for one in drains if one["deadline_at"]), default=None),
            "remaining_ms": max((one["remaining_ms"] for one in leaving), default=None),
            "in_flight": held[:_MOST_SHOWN],
            **{name: sum(one[name] for one in drains) for name in _COUNTS},
            "roles": {f"worker.{child.place}": self._phase_of(child) for child in self._children()},
        }

    def _phase_of(self, child: ChildAt) -> str:
        drain = self._drains.get(child.pid)
        return "starting" if drain is None else str(drain["roles"].get("worker", drain["state"]))

    def _ask(self, path: str) -> dict[int, Answer]:
        """Ask every child that has said where it is; those that do not answer are left out."""
        asked = [(child.pid, child.admin) for child in self._children() if child.admin is not None]
        if not asked:
            return {}
        with ThreadPoolExecutor(max_workers=min(len(asked), _AT_ONCE)) as threads:
            answers = threads.map(lambda one: _get(one[1], path), asked)
            return {pid: answer for (pid, _), answer in zip(asked, answers, strict=True) if answer is not None}


def _get(address: str, path: str) -> Answer | None:
    url = urlsplit(address)
    connection = HTTPConnection(url.hostname or "", url.port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()
