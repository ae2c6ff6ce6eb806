"""What decides about the claim of a ready token: the one fragment of it that claims and explanations share.

Whoever adds a condition to a claim adds it here, so that what is said of a job stays what is done with it. Owns no
statement. Used by `claim` and `explain`.
"""

from __future__ import annotations

from .queues import PAUSED

# Of a row of `queue` called q: how many more of its jobs may run, null without a limit.
PLACES = """case when q.concurrency is not null then greatest(q.concurrency - (
        select count(*) from outlast.running r where r.queue = q.name), 0)::int end"""


def is_open(queue: str) -> str:
    """Give the condition that a queue, an expression, is not paused and has a place for one more running job."""
    return f"""not exists (
  select from outlast.queue q where q.name = {queue} and ({PAUSED} or {PLACES} = 0))"""


def fits(names: str, alone_ok: str) -> str:
    """Give the condition on a token `r` for a worker that knows `names`, ids in an array.

    `alone_ok`: it runs nothing else, and could take a job that must run alone. The envelope is asked only by one that
    does.
    """
    return f"""r.name_id = any({names}) and ({alone_ok} or r.crashes + 1 < coalesce(
  (select j.max_crashes from outlast.job j where j.id = r.job_id), 32767))"""  # noqa: S608  expressions of ours
