"""The command of the state machine that holds what is said of jobs to what a worker does with them.

For one snapshot: a job is explained as runnable exactly if a worker that serves its queue, its name and its version,
and runs nothing else, claims it; where only so many of a queue may run, those that are before the others. Of limited
jobs one may take the slot, the start or the place that another could have had.
"""

from __future__ import annotations

from collections import Counter
from typing import cast

from hypothesis.stateful import precondition, rule

from app.domain.explain import explain
from app.domain.job import JobId
from app.domain.limit import StoredLimit
from app.domain.reason import Explanation, Situation
from app.domain.snapshot import JobTypeDoc
from tests.properties.driver_model import QUEUES
from tests.properties.fair_rules import FairRules
from tests.properties.limit_rules import LimitRules, document
from tests.support.drivers import new_worker

NAMES = frozenset({"a.job", "b.job"})
ALL = 100
# Code that nobody else runs: what is kept for a version is not for it.
OTHER_CODE = "probe"


class ExplainRules(LimitRules, FairRules):
    """One more command, in any order with the others."""

    @precondition(lambda self: self.jobs)
    @rule()
    def explain_everything_and_claim_what_is_runnable(self) -> None:
        situations = self._situations()
        explained = {job_id: self._agreed(situation) for job_id, situation in situations.items()}
        runnable = {job_id for job_id, each in explained.items() if each.is_runnable}
        places = self._places()
        kept = {job_id: each.pin.version for job_id, each in situations.items() if each.pin is not None}
        before = len(self.tokens)
        for version in (OTHER_CODE, *sorted(set(kept.values()))):
            wanted = {job_id for job_id in runnable if kept.get(job_id, OTHER_CODE) == version}
            claimed = self._claimed_by(version)
            assert claimed <= wanted, f"a worker with code {version}"
            gated = {job_id for job_id in wanted if situations[job_id].limits}
            for job_id in claimed & gated:
                places[situations[job_id].job.queue] -= 1
            first = _first(wanted - gated, situations, places)
            mixed = {queue for queue in self.ever_fair if self._is_mixed(queue, wanted - gated, situations)}
            assert _split(claimed - gated, situations, mixed) == _split(first, situations, mixed), f"code {version}"
            taken = {key for job_id in claimed for key in _keys(situations[job_id])}
            for job_id in gated - claimed:  # somebody has the slot, or the place
                has_place = places[situations[job_id].job.queue] > 0
                assert _keys(situations[job_id]) & taken or not has_place, f"a worker with code {version}"
        self._give_back(before)

    def _situations(self) -> dict[JobId, Situation]:
        found = {}
        for job in self.jobs:
            situation = self.twins.ask(lambda side, job_id=job.id: side.driver.situation(job_id))  # type: ignore[misc]  # bound now
            if situation is not None:
                found[job.id] = cast("Situation", situation)
        assert found.keys() == self.views.keys()
        return found

    def _places(self) -> dict[str, int]:
        """Give how many more jobs of each queue may run."""
        facts = self._facts().items()
        return {
            queue: ALL if known.concurrency is None else max(0, known.concurrency - known.running)
            for queue, known in facts
        }

    def _is_mixed(self, queue: str, wanted: set[JobId], situations: dict[JobId, Situation]) -> bool:
        """Say whether some jobs of a queue stand in line and others do not: of two lines each has its own first."""
        return not all(situations[job_id].turn for job_id in wanted if situations[job_id].job.queue == queue)

    def _agreed(self, situation: Situation) -> Explanation:
        """Give an explanation whose reasons say the same as its verdict."""
        explained = explain(situation)
        assert explained.reasons, situation
        assert explained.is_runnable is not any(reason.kind.blocks for reason in explained.reasons), explained
        return explained

    def _claimed_by(self, version: str) -> set[JobId]:
        """Let a worker with nothing to do, which serves and knows everything, claim all it can."""
        about = new_worker(code_version=version, queues=QUEUES, concurrency=ALL, names=tuple(NAMES))
        self.twins.register(lambda side: side.driver.register_worker(about))
        stored = cast("tuple[StoredLimit, ...]", self.twins.ask(lambda side: side.driver.stored_limits()))
        docs = [
            JobTypeDoc(
                name=name,
                code_version=version,
                document=document(limit for limit in stored if limit.name == name),  # what is in force stays so
            )
            for name in sorted(NAMES)
        ]
        self.twins.ask(lambda side: side.driver.publish_job_types(docs))
        before = len(self.tokens)
        self._admit(len(self.twins.workers) - 1, ALL)
        self._claim(len(self.twins.workers) - 1, dict.fromkeys(QUEUES, ALL), NAMES, ALL)
        return {token.memory.job_id for token in self.tokens[before:]}

    def _give_back(self, first: int) -> None:
        taken = self.tokens[first:]
        self.twins.ask(lambda side: side.driver.release([side.own(token) for token in taken], cause="probe"))
        self.twins.ask(lambda side: side.driver.free_slots([side.own(token) for token in taken]))
        for worker in self.twins.workers:
            if worker.memory in {token.memory.worker_id for token in taken}:
                self.twins.ask(lambda side, worker=worker: side.driver.close_worker(side.own(worker)))  # type: ignore[misc]  # same


def _first(wanted: set[JobId], situations: dict[JobId, Situation], places: dict[str, int]) -> set[JobId]:
    """Give the jobs for which there are places, in the order of their queue; they have those places then."""
    taken = set[JobId]()
    for job_id in sorted(wanted, key=lambda each: situations[each].ahead):
        queue = situations[job_id].job.queue
        if places[queue] > 0:
            places[queue] -= 1
            taken.add(job_id)
    return taken


def _split(job_ids: set[JobId], situations: dict[JobId, Situation], mixed: set[str]) -> tuple[set[JobId], Counter[str]]:
    """Give the jobs of queues with one line, and how many there are of those that come in two."""
    queues = {job_id: situations[job_id].job.queue for job_id in job_ids}
    return (
        {job_id for job_id, queue in queues.items() if queue not in mixed},
        Counter(queue for queue in queues.values() if queue in mixed),
    )


def _keys(situation: Situation) -> set[tuple[str, str, str]]:
    return {(situation.job.name, facts.limit, facts.key) for facts in situation.limits}
