"""Settle and claim at once: the statements of both verbs as one, with one commit.

Owns the fusion and nothing of either half: each of the settle's two texts with each of the claim's two. The settle's
half is over before the claim's begins. They do not see each other: what is settled as ready again is claimed by a later
statement. Called by the worker whenever outcomes are pending and places are free.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ...domain.job import ClaimedJob
from ...domain.outcome import Completed, SettleAnswer, Settlement
from ..protocol import ClaimRequest
from .claim import MAY_CLAIM, SETTLED, TAKEN, TAKING_MANY, TAKING_ONE, BindsOn, claim, claim_by
from .database import Database
from .lock_order import in_both_forms
from .settle import SETTLING, SETTLING_DONE, answers_of, as_sent, settle, wake
from .settle_runs import tell_of_ends, touches_run

# A settle may wait for somebody who has one of its claims. Tokens that were locked by then would be hidden from every
# other worker for as long as it waits. Counting never says no; it only has to be done first.
_SETTLED_FIRST = "(select count(*) >= 0 from g) and "


def _fused(settling: str, taking: str) -> str:
    """Give a claim's parts behind those of a settle, its binds counted on."""
    binds = max(int(number) for number in re.findall(r"\$(\d+)", settling))
    behind = taking.replace(MAY_CLAIM, f"{_SETTLED_FIRST}{MAY_CLAIM}")
    moved = re.sub(r"\$(\d+)", lambda bind: f"${int(bind[1]) + binds}", behind)
    taken = TAKEN.replace("{settled}", "array(select seq from g)")
    return f"with {settling.strip()},\n{moved}{taken}"


SETTLE_AND_CLAIM_ONE = _fused(SETTLING, TAKING_ONE)
SETTLE_AND_CLAIM_MANY = _fused(SETTLING, TAKING_MANY)
SETTLE_DONE_AND_CLAIM_ONE = _fused(SETTLING_DONE, TAKING_ONE)
SETTLE_DONE_AND_CLAIM_MANY = _fused(SETTLING_DONE, TAKING_MANY)
_ONE_END = (Completed(),)  # as good as many, for who is to be woken
# By whether all are plain ends, and whether the claim is from one queue.
IN_ORDER = {
    (False, True): in_both_forms(SETTLE_AND_CLAIM_ONE),
    (False, False): in_both_forms(SETTLE_AND_CLAIM_MANY),
    (True, True): in_both_forms(SETTLE_DONE_AND_CLAIM_ONE),
    (True, False): in_both_forms(SETTLE_DONE_AND_CLAIM_MANY),
}


async def settle_and_claim(
    db: Database, settlements: Sequence[Settlement], request: ClaimRequest
) -> tuple[tuple[SettleAnswer, ...], tuple[ClaimedJob, ...]]:
    """Close attempts and take ready jobs in one statement; each half is fenced by itself, and both fail together.

    Raises:
        QueuesEmpty: the request names no queue.
    """
    if not request.shares:
        return (), await claim(db, request)  # which refuses it, before anything is settled
    fences = {settlement.token.fence for settlement in settlements}
    is_apart = len(fences) < len(settlements) or not settlements or request.room <= 0 or db.limited.has_any(fences)
    if is_apart or any(map(touches_run, settlements)):
        # Two settlements of one claim take two statements; without one of the halves there is nothing to fuse. What
        # touches a run has to look again in mid-transaction, which one statement cannot. The claim does not see the
        # place of a limited queue that the settle beside it frees.
        answers = await settle(db, settlements)
        return answers, await claim(db, request)
    order = sorted(range(len(settlements)), key=lambda index: settlements[index].token.fence)
    index_of = {settlements[index].token.fence: index for index in order}
    sent = as_sent([settlements[index] for index in order])
    won: set[int] = set()

    async def look(is_one: bool, binds_on: BindsOn) -> list[Any]:  # noqa: FBT001 - see `Look`
        sql = IN_ORDER[sent.is_plain, is_one].on(db)
        rows: list[Any] = await db.run(lambda conn: conn.fetch(sql, *sent.columns, *binds_on(conn)))
        won.update(map(index_of.__getitem__, rows[0][SETTLED]))
        return rows

    claimed = await claim_by(db, request, first=look)
    await wake(db, [settlements[index].outcome for index in won] if not sent.is_plain else _ONE_END[: len(won)])
    await tell_of_ends(db, [settlements[index] for index in won])
    return await answers_of(db, settlements, won), claimed
