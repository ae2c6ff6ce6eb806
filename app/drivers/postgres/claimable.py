"""What decides about the claim of a ready token: the one fragment of it that claims and explanations share.

Whoever adds a condition to a claim adds it here, so that what is said of a job stays what is done with it. Owns no
statement. Used by `claim` and `explain`.
"""

from __future__ import annotations


def not_paused(queue: str) -> str:
    """Give the condition that claims from a queue, an expression, are not stopped."""
    return f"not exists (select from outlast.queue q where q.name = {queue} and q.paused_at is not null)"


def fits(names: str, alone_ok: str) -> str:
    """Give the condition on a token `r` for a worker that knows `names`, ids in an array.

    `alone_ok`: it runs nothing else, and could take a job that must run alone. The envelope is asked only by one that
    does.
    """
    return f"""r.name_id = any({names}) and ({alone_ok} or r.crashes + 1 < coalesce(
  (select j.max_crashes from outlast.job j where j.id = r.job_id), 32767))"""  # noqa: S608  expressions of ours
