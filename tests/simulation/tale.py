"""A history read back as the lives of machines and bodies, and the rules of leaving over it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from app.domain.state import State
from tests.simulation.record import Body, Fact, Fate, Moved, Renewed, Said, Sent

_TICK = 1e-4
_LONGEST_RESERVE = 2.0  # seconds kept back for closing
_HEEDLESS = ("swallow", "stubborn")
_CALLS = 4  # to the store, one after the other, while a worker stops
_CLAIMS = {"claim", "settle_and_claim", "admit"}
_SETTLES = {"settle", "settle_and_claim"}
_ON_THE_WAY = {"is slow", "the store is away"}  # said of a call that was sent before
_AWAY = ("frozen", "sleeps")
_TROUBLE = (*_AWAY, "clock jumps", "killed", "is cut off")


@dataclass(slots=True, kw_only=True)
class BodyLife:
    """One start of a body. `how` it ended, empty while it never did."""

    at: float
    machine: MachineLife
    kind: str = ""
    how: str = ""
    told_at: float | None = None
    why_told: str = ""
    ended_at: float = math.inf

    @property
    def can_be_cancelled(self) -> bool:
        """Say whether it ends when it is cancelled."""
        return self.kind.startswith("sim.async") and not self.kind.endswith(_HEEDLESS)

    def is_over(self, at: float) -> bool:
        return self.ended_at <= at


@dataclass(slots=True, kw_only=True)
class ClaimLife:
    """One claim, as long as the store had it."""

    worker: int | None
    at: float
    until: float = math.inf


@dataclass(slots=True, kw_only=True, eq=False)
class MachineLife:
    """One process, or one life of a worker that a program embeds.

    `told_at` is its first drain, `deadline` the nearest one of its process; `bound_to` that of the worker alone, whose
    calls under way may last a little longer. `stopped_at`: by hand, which tells nobody.
    """

    name: str
    told_at: float | None = None
    deadline: float = math.inf
    bound_to: float = math.inf
    cancel_at: float = math.inf
    stopped_at: float | None = None
    has_run: bool = False
    over_at: float = math.inf
    over: str = ""
    away: list[tuple[float, float]] = field(default_factory=list)
    claims: list[Sent] = field(default_factory=list)
    renewals: list[float] = field(default_factory=list)
    landed: list[Renewed] = field(default_factory=list)
    writes: list[Sent] = field(default_factory=list)
    isolations: list[float] = field(default_factory=list)
    had_trouble: bool = False

    def was_away(self, since: float, until: float) -> bool:
        """Say whether it was frozen, asleep, or gone at any time in a span."""
        return self.over_at <= until or any(begin <= until and end > since for begin, end in self.away)

    def wakes(self, at: float) -> float:
        """Give the instant, from another on, at which it runs."""
        return next((end for begin, end in self.away if begin <= at < end), at)


class Tale:
    """Machines by name, each in its last life so far, and bodies by job and claim."""

    def __init__(self, facts: Sequence[Fact]) -> None:
        self.machines: dict[str, MachineLife] = {}
        self.bodies: dict[tuple[str, int], BodyLife] = {}
        self.claims: dict[tuple[str, int], ClaimLife] = {}
        self._lives: list[MachineLife] = []
        self._workers: dict[int, MachineLife] = {}
        for fact in facts:
            match fact:
                case Fate():
                    self._fate(fact)
                case Body():
                    self._body(fact)
                case Renewed():
                    self.machines[fact.machine].landed.append(fact)
                case Moved():
                    self._moved(fact)
                case Said():
                    self._said(fact)
                case Sent():
                    self._sent(fact)
                case _:
                    pass

    def machine_of(self, worker: int | None) -> MachineLife | None:
        """Give the machine of a worker id; None for one that never learnt its id."""
        return None if worker is None else self._workers.get(worker)

    def check_drains(self, *, patience: float) -> None:
        """K8: told means no claim any more, every body told at once, no body begun, gone by the deadline.

        A stop by hand tells nobody. `patience`: how long a call to the store may last.
        """
        for machine in self._lives:
            if machine.told_at is None:
                assert machine.over != "exits 75", f"{machine} died of itself"
            else:
                self._tells_all(machine, machine.told_at)
                self._cancels_all(machine)
                self._leaves(machine, patience=patience)
            if (since := _earliest(machine.told_at, machine.stopped_at)) is not None:
                self._takes_nothing(machine, since)
            self._tells_nobody(machine)

    def check_heartbeats(self, *, every: float) -> None:
        """Where nothing goes wrong the lease is renewed in time, as long as a body runs that is not given up."""
        for machine in self._lives:
            if machine.had_trouble:
                continue
            last = max((min(body.ended_at, machine.cancel_at) for body in self._bodies_of(machine)), default=0.0)
            until = min(last, machine.over_at)
            beats = [*(at for at in machine.renewals if at < until), until]
            gaps = [after - before for before, after in pairwise(beats)]
            assert max(gaps, default=0.0) <= every + _TICK, f"{machine} did not renew its lease for {max(gaps)}"

    def check_leases(self, *, lease: float) -> None:
        """Since the last renewal that was answered had been sent: no claim after half a lease, no settle after one."""
        for machine in self._lives:
            for sent, most in (
                *((one, lease / 2) for one in machine.claims),
                *((one, lease) for one in machine.writes),
            ):
                since = max((one.sent for one in machine.landed if one.at <= sent.at + _TICK), default=sent.at)
                is_young = sent.at - since <= most + _TICK
                assert is_young or machine.was_away(since, sent.at), f"{machine}: {sent} when its lease was {since}"

    def _takes_nothing(self, machine: MachineLife, since: float) -> None:
        late = [sent for sent in machine.claims if sent.at > since + _TICK]
        assert not late, f"{machine} claims after it was told: {late}"
        begun = [body for body in self._bodies_of(machine) if body.at > since + _TICK and body.how != "sync"]
        assert not begun, f"{machine} begins after it was told: {begun}"

    def _tells_all(self, machine: MachineLife, told_at: float) -> None:
        for body in self._bodies_of(machine):
            is_held = body.at < told_at and body.ended_at > told_at + _TICK
            if is_held and machine.over_at > told_at + _TICK and not machine.was_away(told_at, told_at):
                assert body.told_at is not None, f"{machine}: {body} is not told"
                assert body.told_at <= told_at + _TICK, f"{machine}: {body} is told late"

    def _cancels_all(self, machine: MachineLife) -> None:
        at = machine.cancel_at
        if machine.was_away(machine.told_at or at, at + _TICK):
            return
        late = [body for body in self._bodies_of(machine) if body.can_be_cancelled and body.ended_at > at + _TICK]
        assert not late, f"{machine} did not cancel {late} at {at}"

    def _tells_nobody(self, machine: MachineLife) -> None:
        for body in self._bodies_of(machine):
            if body.why_told == "drain":
                assert machine.told_at is not None, f"{machine} tells {body} to leave, and nobody told it"
                assert body.told_at is not None, f"{machine}: {body}"
                assert body.told_at >= machine.told_at, f"{machine} tells {body} to leave before it was told"

    def _leaves(self, machine: MachineLife, *, patience: float) -> None:
        if any(end >= (machine.told_at or 0.0) for _, end in machine.away):
            return
        assert machine.over_at <= machine.deadline + _TICK, f"{machine} is not gone by its deadline"
        assert machine.over_at <= machine.bound_to + _CALLS * patience, f"{machine} has not stopped by its deadline"
        ways = {"exits 0", "exits 70", "killed", "stopped", "fails"}
        assert machine.over in ways or not machine.has_run, f"{machine} leaves with {machine.over}"
        if machine.over == "exits 0":
            here = [(key, body) for key, body in self.bodies.items() if body.machine is machine and not body.how]
            left = [body for key, body in here if self.claims[key].until > machine.over_at]  # the others are closed
            assert not left, f"{machine} says that it left nothing, but {left}"

    def _bodies_of(self, machine: MachineLife) -> list[BodyLife]:
        return [body for body in self.bodies.values() if body.machine is machine]

    # --- reading ------------------------------------------------------------------------------------------------------

    def _fate(self, fact: Fate) -> None:
        if fact.machine == "world":
            for one in self._lives if fact.what == "the store is away" else ():
                one.had_trouble = True
            return
        if fact.what.startswith("starts"):
            self._starts(fact)
        machine = self.machines[fact.machine]
        machine.had_trouble = machine.had_trouble or fact.what.startswith(_TROUBLE)
        if fact.what in _AWAY:
            machine.away.append((fact.at, fact.at + fact.seconds))
        elif fact.what.startswith("told"):
            machine.told_at = _earliest(machine.told_at, fact.at)
            machine.deadline = min(machine.deadline, fact.at + fact.seconds)
            machine.cancel_at = min(machine.cancel_at, _cancel_at(fact))
        elif fact.what == "bound":
            machine.told_at = _earliest(machine.told_at, fact.at)
            machine.bound_to = min(machine.bound_to, fact.at + fact.seconds)
            machine.cancel_at = min(machine.cancel_at, _cancel_at(fact))
        elif fact.what == "stops by hand":
            machine.stopped_at = fact.at
        elif fact.what in {"killed", "stopped", "fails"} or fact.what.startswith("exits"):
            machine.over_at, machine.over = min(machine.over_at, fact.at), machine.over or fact.what

    def _starts(self, fact: Fate) -> None:
        """Begin a life; what was frozen stays so."""
        before = self.machines.get(fact.machine)
        machine = MachineLife(name=fact.machine)
        if before is not None:
            machine.away, machine.had_trouble = list(before.away), before.had_trouble
        self.machines[fact.machine] = machine
        self._lives.append(machine)

    def _body(self, fact: Body) -> None:
        key = (fact.job, fact.claim_no)
        machine = self.machines[fact.machine]
        match fact.step:
            case "begin":
                self.bodies[key] = BodyLife(at=fact.at, machine=machine, kind=fact.what)
            case "sync":
                self.bodies[key] = BodyLife(at=fact.at, machine=machine, how="sync", ended_at=fact.at)
            case "effect":
                pass  # of a step: `checks` looks at it
            case "told":
                self.bodies[key].told_at, self.bodies[key].why_told = fact.at, fact.what
            case _:
                self.bodies[key].how, self.bodies[key].ended_at = fact.what, fact.at

    def _sent(self, fact: Sent) -> None:
        if (machine := self.machines.get(fact.machine)) is None:
            return
        if fact.fate in _ON_THE_WAY:
            machine.had_trouble = True
            return
        if fact.verb in _CLAIMS:
            machine.claims.append(fact)
        if fact.verb in _SETTLES:
            machine.writes.append(fact)
        if fact.verb == "isolate":
            machine.isolations.append(fact.at)
        if fact.verb == "renew":
            machine.renewals.append(fact.at)
        if fact.fate != "arrives":
            machine.had_trouble = True

    def _moved(self, fact: Moved) -> None:
        key = (fact.job, fact.claim_no)
        if fact.target is State.RUNNING:
            self.claims[key] = ClaimLife(worker=fact.worker, at=fact.at)
        elif fact.source is State.RUNNING:
            self.claims[key].until = fact.at

    def _said(self, fact: Said) -> None:
        machine = self.machines[fact.machine]
        if fact.event == "registered":
            self._workers[int(fact.about)] = machine
        elif fact.event == "worker.started":
            machine.has_run = True


def _cancel_at(fact: Fate) -> float:
    return fact.at + fact.seconds - min(_LONGEST_RESERVE, fact.seconds / 5)


def _earliest(*instants: float | None) -> float | None:
    return min((instant for instant in instants if instant is not None), default=None)
