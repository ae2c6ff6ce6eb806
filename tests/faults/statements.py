"""How a proxy knows the product's statements on the wire: by how their text begins."""

from __future__ import annotations

from app.drivers.postgres.claim import CLAIM_ONE
from app.drivers.postgres.database import in_schema
from app.drivers.postgres.outbox_claim import END
from app.drivers.postgres.settle import SETTLE

_LENGTH = 110


def _beginning(sql: str) -> str:
    return in_schema(sql, "outlast").lstrip()[:_LENGTH]


SETTLING = _beginning(SETTLE)
CLAIMING = _beginning(CLAIM_ONE)
_FENCED = "order by w.name for update)"
TAKING = 'insert into "outlast".running'  # in a claim, alone or along with a settle
ENQUEUING = 'insert into "outlast".job('
ENDING = _beginning(END)
# What a run of steps consists of: claims, what it reads of itself, records, suspensions, ends, and commits of several.
RUNNING = (TAKING, 'insert into "outlast".step(', 'from "outlast".step s where', _FENCED, SETTLING, "COMMIT")
