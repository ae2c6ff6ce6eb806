"""The outbox: what waits to be published, how far it lags, and rows that were put aside, with their reason."""

from __future__ import annotations

from starlette.responses import Response

from ...control.outbox import SHOWN
from ...domain.errors import RequestInvalid
from ...domain.outbox import MOST_COUNTED, OutboxId
from ...domain.text import read_uuid
from ..visit import OPERATE, Visit


async def page(visit: Visit) -> Response:
    """Give the outbox as it stands."""
    view = await visit.services.outbox.view(SHOWN, tenant=visit.tenant)
    return visit.page(
        "outbox.html", title="Outbox", at="outbox", outbox=view, most=MOST_COUNTED, may_act=visit.may(OPERATE)
    )


async def replay(visit: Visit) -> Response:
    """Stage one row again, or all that were put aside; of a visitor of one tenant, that tenant's."""
    form = await visit.form()
    by, row = visit.acting(form), read_uuid(form.one("row"))
    if row is None and form.one("all") != "yes":
        raise RequestInvalid("no row was named", fix="press the button of a row, or that of all")
    ids = None if row is None else [OutboxId(row)]
    count = await visit.services.outbox.replay(ids, tenant=visit.tenant, by=by.actor, reason=by.reason)
    return visit.go("/outbox", said=f"Staged again: {count:,}")
