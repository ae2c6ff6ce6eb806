"""Settlements that touch a run: those that suspend, hand back, or leave waits in the store.

A batch with one of them is settled in a transaction, outside the one statement of `settle` and the fused one: most jobs
have no run, and theirs stay as they are. Owns the order of locks over such a batch (what is waited for, claims by id,
then the rest), and telling parents of the ends of their children. Called by `settle` and `settle_and_claim`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from ...domain.outcome import Cancelled, Completed, DeadLettered, Held, Settlement, Suspended
from ...domain.step import StepKind
from ..protocol import Wake
from .cancel import cancel_children, tell_of_children
from .database import Database, Raw
from .enqueue_batch import HalfWonError
from .hand_back import HandBack
from .notify import notify
from .resolve import KIND_CODES
from .run_locks import looking, take
from .sqlstate import Taken
from .suspend import SharedError, Suspension
from .waits import tell_parents

# Each repetition means that somebody else committed in between.
_TRIES = 10

# Settles plain ones on a connection, by their index, and gives the indexes of those whose claims were held.
Close: TypeAlias = Callable[[Raw, Mapping[int, Settlement]], Awaitable[set[int]]]

_CLAIMS = "select r.job_id from outlast.running r where r.job_id = any($1::uuid[]) order by r.job_id for update"
_DROP_WAITS = "delete from outlast.wait where job_id = $1"
_FORGET = f"""
with w as (delete from outlast.wait where job_id = $1 and name = any($2::text[]))
delete from outlast.step
where run_id = (select coalesce(j.run_id, j.id) from outlast.job j where j.id = $1) and name = any($2::text[])
  and kind = {KIND_CODES[StepKind.EVENT]} and event_seq is null"""  # noqa: S608  a number of our own


def touches_run(settlement: Settlement) -> bool:
    """Say whether a settlement does more than move its token."""
    outcome = settlement.outcome
    if type(outcome) is Completed:
        return settlement.has_waits  # first, as nearly all are such
    if isinstance(outcome, Held):
        return outcome.version is not None or outcome.or_dead
    if isinstance(outcome, Suspended):
        return True
    return bool(settlement.forgets) or (settlement.has_waits and isinstance(outcome, Cancelled))


def rounds_of(settlements: Mapping[int, Settlement]) -> list[dict[int, Settlement]]:
    """Give one per sequence and round: two that name one claim cannot both win, and the order given decides."""
    waiting, rounds = dict(settlements), []
    while waiting:
        chosen: dict[int, int] = {}
        for index, settlement in waiting.items():
            chosen.setdefault(settlement.token.fence, index)
        rounds.append({index: waiting.pop(index) for index in chosen.values()})
    return rounds


async def settle_with_runs(db: Database, settlements: Sequence[Settlement], close: Close) -> set[int]:
    """Settle a batch, all or, on an error, none; gives the indexes of those whose claims were held.

    Raises:
        OutlastError: a value cannot be stored, or a child was refused.
    """
    batch = _Batch(db, settlements, close)
    await batch.prepare()
    for left in range(_TRIES - 1, -1, -1):
        try:
            won = await db.run(batch.once)
            break
        except SharedError:
            if not left:
                raise
        except (Taken, HalfWonError):
            batch.repeated()
            if not left:
                raise
    else:
        raise AssertionError("the last try breaks or raises")
    await batch.tell()
    return won


async def tell_of_ends(db: Database, settlements: Iterable[Settlement]) -> None:
    """Tell the runs that wait for jobs which have just been settled for good."""
    await tell_parents(db, [one.token.job_id for one in settlements if one.is_child and _is_end(one)])


def _is_end(settlement: Settlement) -> bool:
    return isinstance(settlement.outcome, Completed | DeadLettered | Cancelled)


@dataclass(frozen=True, slots=True, kw_only=True)
class _WithWaits:
    """A settlement of `settle`'s, after which the run no longer waits for some of what it waited for."""

    index: int
    settlement: Settlement
    close: Close

    async def settle(self, db: Database, conn: Raw) -> list[UUID] | None:
        """Settle and drop waits; gives the children that were cancelled. None: the claim is gone."""
        job_id, outcome = self.settlement.token.job_id, self.settlement.outcome
        if not await self.close(conn, {self.index: self.settlement}):
            return None
        if isinstance(outcome, Cancelled):
            return await cancel_children(db, conn, job_id)
        if isinstance(outcome, Completed):
            await conn.execute(db.in_schema(_DROP_WAITS), job_id)
        else:
            await conn.execute(db.in_schema(_FORGET), job_id, list(self.settlement.forgets))
        return []


class _Batch:
    """Settlements of one transaction, by what each takes."""

    def __init__(self, db: Database, settlements: Sequence[Settlement], close: Close) -> None:
        self._db = db
        self._all = settlements
        self._close = close
        self._plain = {index: one for index, one in enumerate(settlements) if not touches_run(one)}
        self._suspensions: dict[int, Suspension] = {}
        self._others: dict[int, HandBack | _WithWaits] = {}
        for index, one in enumerate(settlements):
            if index in self._plain:
                continue
            match one.outcome:
                case Suspended(waits=waits):
                    self._suspensions[index] = Suspension(one, waits)
                case Held() as outcome:
                    self._others[index] = HandBack(one, outcome)
                case _:
                    self._others[index] = _WithWaits(index=index, settlement=one, close=close)
        self._wakes: set[Wake] = set()
        self._cancelled: list[UUID] = []

    async def prepare(self) -> None:
        """Learn what the transaction needs."""
        for one in (*self._suspensions.values(), *self._others.values()):
            if not isinstance(one, _WithWaits):
                await one.prepare(self._db)

    def repeated(self) -> None:
        """Take a child's id that is there already for that very child from now on."""
        for one in self._suspensions.values():
            one.is_repeated = True

    async def once(self, conn: Raw) -> set[int]:
        """Settle all, in one transaction."""
        db = self._db
        self._wakes, self._cancelled = set(), []
        async with looking(conn):
            locks = [lock for one in self._suspensions.values() for lock in await one.locks(db, conn)]
            await take(conn, locks)
            if len(self._all) > 1:
                await conn.fetch(db.in_schema(_CLAIMS), [one.token.job_id for one in self._all])
            won: set[int] = set()
            for one_round in rounds_of(self._plain):
                won |= await self._close(conn, one_round)
            for index, one in self._suspensions.items():
                self._book(won, index, await one.settle(db, conn))
            for index, other in self._others.items():
                if isinstance(other, HandBack):
                    self._book(won, index, await other.settle(db, conn))
                    continue
                cancelled = await other.settle(db, conn)
                if cancelled is not None:
                    self._cancelled += cancelled
                    self._book(won, index, ())
        return won

    async def tell(self) -> None:
        """Tell of what was committed."""
        for one in self._suspensions.values():
            self._db.called.add(one.shared)
        await notify(self._db, *self._wakes)
        await tell_of_children(self._db, self._cancelled)

    def _book(self, won: set[int], index: int, wakes: Sequence[Wake] | None) -> None:
        if wakes is not None:
            won.add(index)
            self._wakes.update(wakes)
