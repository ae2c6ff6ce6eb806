"""What must be true of every world, whatever its trouble: the rules of all runs, and what only a simulation sees.

Each is a function of a world that has ended; `verify` holds it to all of them.
"""

from __future__ import annotations

from collections import defaultdict

from app.domain.ledger import CAUSE_ABANDONED, CAUSE_WORKER_CLOSED
from app.domain.outcome import CancelVerdict, OutcomeKind, SettleAnswer
from app.domain.state import TERMINAL, DeadReason, State
from tests.faults import checkers
from tests.faults.checkers import Account, Move, Start
from tests.simulation.limits import capacity
from tests.simulation.link import at_once
from tests.simulation.record import Asked, Body, Closed, Moved, Recorded, Settled
from tests.simulation.tale import Tale
from tests.simulation.world import Outcome

_TICK = 1e-4  # facts carry rounded instants
_TAKEN = {CAUSE_WORKER_CLOSED, CAUSE_ABANDONED}
_LOSSES = {OutcomeKind.CRASHED, OutcomeKind.LEASE_LOST}
_BUSY_LOOK = 0.15  # how often a heartbeat judges its lease, at most


def verify(world: Outcome) -> None:
    """Hold a world to every rule."""
    assert not world.noise, f"said on the loop: {world.noise}"
    assert not world.left, f"never came to rest: {world.left}"
    tale = Tale(world.history.facts)
    shared_rules(world)
    leases(world)
    cancels(world)
    publications(world)
    capacity(world, tale)
    truth(world, tale)
    steps(world)
    overlaps(world, tale)
    losses(world, tale)
    poison(world, tale)
    tale.check_leases(lease=world.plan.lease)
    tale.check_heartbeats(every=world.plan.options.heartbeat.total_seconds())
    tale.check_drains(patience=world.plan.patience + 2 * world.plan.odds.slow_seconds)


def shared_rules(world: Outcome) -> None:
    """K1, K2, K3, K4, K6, K7: what every run has to pass."""
    moves = [_move(fact) for fact in world.history.of(Moved)]
    starts = [Start(job=fact.job, claim_no=fact.claim_no) for fact in _begun(world)]
    asked = [fact for fact in world.history.of(Asked) if fact.verb == "enqueue"]
    checkers.nothing_lost(
        known={world.history.name(job_id) for job_id in world.driver.store.envelopes},
        asked={fact.job for fact in asked},
        acked=[fact.answer for fact in asked if fact.answer is not None],
        ran={start.job for start in starts},
    )
    checkers.legal(moves)
    checkers.fenced(moves)
    ended = {(fact.job, fact.claim_no): fact.outcome for fact in world.history.of(Closed)}
    # A suspension whose wait is over leads to ready, and leaves no row.
    ended |= {
        (fact.job, fact.claim_no): fact.outcome
        for fact in world.history.of(Settled)
        if fact.outcome is OutcomeKind.SUSPENDED and fact.answer is SettleAnswer.SETTLED
    }
    checkers.explained(starts, moves, ended)
    accounts = _accounts(world)
    checkers.counted(accounts, revived=checkers.retried_by_hand(moves))
    checkers.dead_with_reason(accounts)
    checkers.one_live_job_a_key(([move] for move in moves), world.key_of)


def leases(world: Outcome) -> None:
    """K4: what was settled was the newest claim, by its own worker, under a lease that had not passed."""
    newest: dict[str, Moved] = {}
    before: dict[str, Moved] = {}
    for fact in world.history.facts:
        if isinstance(fact, Moved) and fact.target is State.RUNNING:
            before[fact.job] = newest.get(fact.job, fact)
            newest[fact.job] = fact
        elif isinstance(fact, Settled) and fact.answer is SettleAnswer.SETTLED:
            claim = newest[fact.job]
            if fact.outcome is OutcomeKind.SUSPENDED and claim.at == fact.at:
                # A wait was over, and the claim that came along with the settlement took the job again.
                claim = before[fact.job] if claim.claim_no > fact.claim_no else claim
            assert (fact.claim_no, fact.worker) == (claim.claim_no, claim.worker), f"{fact} was accepted over {claim}"
            assert fact.lease_left is not None, f"{fact} was accepted from a worker that is gone"
            assert fact.lease_left > 0, f"{fact} was accepted after its lease"


def cancels(world: Outcome) -> None:
    """A cancel that was acknowledged has ended the job, and only a retry by hand brings it back."""
    state: dict[str, State | None] = {}
    for fact in world.history.facts:
        if isinstance(fact, Moved):
            state[fact.job] = fact.target
        elif isinstance(fact, Asked) and fact.verb == "cancel":
            is_over = fact.answer == CancelVerdict.ALREADY_FINISHED
            wanted = TERMINAL if is_over else {State.CANCELLED}
            assert state[fact.job] in wanted, f"{fact} left the job {state[fact.job]}"


def publications(world: Outcome) -> None:
    """K14: what a source was acknowledged for is one job, whatever ids it was asked under; and so it is for a key."""
    known = {world.history.name(job_id) for job_id in world.driver.store.envelopes}
    answers: dict[str, set[str]] = defaultdict(set)
    jobs: dict[str, set[str]] = defaultdict(set)
    for fact in world.history.of(Asked):
        source = world.source_of.get(fact.job)
        if source is None or fact.verb != "enqueue":
            continue
        if fact.job in known:
            jobs[source].add(fact.job)
        if fact.answer is not None:
            answers[source].add(fact.answer)
    for source, given in answers.items():
        assert len(given) == 1, f"a source was told of {given}"
        assert len(jobs[source]) <= 1, f"a source has become the jobs {jobs[source]}"
        assert jobs[source] <= given, f"a source became {jobs[source]} and was told of {given}"


def truth(world: Outcome, tale: Tale) -> None:
    """What the store took as an outcome is what the body did."""
    for fact in world.history.of(Settled):
        if fact.answer is not SettleAnswer.SETTLED:
            continue
        body = tale.bodies.get((fact.job, fact.claim_no))
        match fact.outcome:
            case OutcomeKind.COMPLETED:
                assert body is not None, f"{fact} never ran"
                assert body.how in {"returned", "sync"}, f"{fact}, but its body {body.how}"
            case OutcomeKind.SUSPENDED:
                assert body is not None, f"{fact} never ran"
                assert body.how in {"Snooze", "Suspension", "sync"}, f"{fact}, but its body {body.how}"
            case OutcomeKind.INTERRUPTED:
                assert body is not None, f"{fact} never ran"
                machine = body.machine
                assert machine.told_at is not None, f"{fact}, but nobody told {machine}"
                assert machine.told_at <= fact.at, f"{fact}, before its machine was told"
            case OutcomeKind.RETRIED | OutcomeKind.DEAD_LETTERED if body is not None and body.how != "returned":
                assert body.why_told != "drain", f"{fact}, but a drain came first"
            case _:
                pass
    for job_id, envelope in world.driver.store.envelopes.items():
        view = at_once(world.driver.describe(job_id))
        assert view is not None
        if view.state is State.DONE:
            assert view.result == f'"claim {view.counters.claim_no}"', f"{envelope.job.name}: {view.result}"


def steps(world: Outcome) -> None:
    """What is recorded of a run is not done again, and a run that is done has all of its steps."""
    recorded: set[tuple[str, str]] = set()
    for fact in world.history.facts:
        if isinstance(fact, Recorded):
            recorded.add((fact.job, fact.step))
        elif isinstance(fact, Body) and fact.step == "effect":
            assert (fact.job, fact.what) not in recorded, f"{fact}, which is recorded"
    for job_id, envelope in world.driver.store.envelopes.items():
        view, run = at_once(world.driver.describe(job_id)), at_once(world.driver.run(job_id))
        assert view is not None
        assert run is not None
        names = [step.name for step in run.history.steps]
        assert len(names) == len(set(names)), f"{envelope.job.name} has recorded {names}"
        if view.state is State.DONE and envelope.job.name == "sim.steps":
            assert set(names) == {"first", "nap", "news", "beside", "last"}, f"a run is done with {names}"
            assert run.history.waits == (), f"a run is done and waits for {run.history.waits}"


def overlaps(world: Outcome, tale: Tale) -> None:
    """When a claim is taken over, its body was told, or is told when its machine goes on: two never run unknowingly."""
    slack = min(_BUSY_LOOK, world.plan.lease / 20) + _TICK
    for fact in world.history.of(Closed):
        body = tale.bodies.get((fact.job, fact.claim_no))
        if body is None or body.how == "sync" or not (fact.outcome in _LOSSES or fact.cause in _TAKEN):
            continue
        by = body.machine.wakes(fact.at) + slack
        told = body.told_at is not None and body.told_at <= by
        if not (told or body.is_over(by) or body.machine.over_at <= by or body.machine.was_away(by - slack, by)):
            raise AssertionError(f"{body} is not told by {by} that {fact}")


def losses(world: Outcome, tale: Tale) -> None:
    """A claim is lost only to what happened to its machine; nothing is lost where nothing happened."""
    for fact in world.history.of(Closed):
        if fact.outcome not in _LOSSES:
            continue
        assert not world.plan.is_calm, f"{fact}, and nothing had happened"
        machine = tale.machine_of(fact.worker)
        assert machine is None or machine.had_trouble, f"{fact}, but nothing had happened to {machine}"


def poison(world: Outcome, tale: Tale) -> None:
    """A job is dead for its crashes only if it had its worker to itself in the last, from when that was on record."""
    for fact in world.history.of(Moved):
        if fact.reason != DeadReason.CRASHED_TOO_OFTEN:
            continue
        last = tale.claims[(fact.job, fact.claim_no)]
        machine = tale.machine_of(last.worker)
        alone = [at for at in (machine.isolations if machine else ()) if last.at <= at <= last.until]
        assert alone, f"{fact.job} is dead for its crashes, and did not run alone"
        for key, claim in tale.claims.items():
            other = tale.bodies.get(key)
            if other is None or claim is last or claim.worker != last.worker:
                continue
            is_beside = other.at < last.until and claim.until > max(alone) + _TICK
            assert not is_beside, f"{fact.job} is dead for its crashes, and {key} ran beside it"


def _begun(world: Outcome) -> list[Body]:
    return [fact for fact in world.history.of(Body) if fact.step in {"begin", "sync"}]


def _move(fact: Moved) -> Move:
    return Move(job=fact.job, source=fact.source, target=fact.target, claim_no=fact.claim_no, is_snooze=fact.is_snooze)


def _accounts(world: Outcome) -> list[Account]:
    accounts = []
    for job_id in world.driver.store.envelopes:
        view = at_once(world.driver.describe(job_id))
        assert view is not None
        ledger = at_once(world.driver.attempts(job_id))
        accounts.append(
            Account(
                job=world.history.name(job_id),
                state=view.state,
                reason=view.state_reason,
                counters=view.counters,
                max_attempts=view.max_attempts,
                max_crashes=view.max_crashes,
                ledger=[row for row in ledger if row.outcome is not OutcomeKind.COMPLETED],
            )
        )
    return accounts
