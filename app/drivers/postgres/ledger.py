"""How the attempt ledger stays bounded: of a long one the first and the last rows are kept.

A fragment of SQL for statements that add at most one row per job, described by a CTE `closed(job_id, claim_no)`. A
statement does not see its own insert, so one row more than is over is taken from the middle. Called by the verbs that
close attempts.
"""

from __future__ import annotations

from ...domain.ledger import FIRST_KEPT, LAST_KEPT

# A job with at most as many claims as rows are kept has nothing to trim.
TRIM_LEDGER = f"""
trimmed as (
  delete from outlast.attempt where ctid = any(array(
    select x.ctid from closed c cross join lateral (
      select o.ctid from outlast.attempt o where o.job_id = c.job_id order by o.number
      offset {FIRST_KEPT}
      limit greatest(0, (
        select count(*) from outlast.attempt n where n.job_id = c.job_id) - {FIRST_KEPT + LAST_KEPT - 1})
    ) x where c.claim_no > {FIRST_KEPT + LAST_KEPT})))"""  # noqa: S608  numbers of our own
