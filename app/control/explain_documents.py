"""How an explanation looks from outside: the field names of the HTTP API and of `--json`.

A pure projection, as in `represent`. Called by the HTTP routes and the command line.
"""

from __future__ import annotations

from ..domain.reason import Explanation, Reason
from .render import Document


def explanation_document(explanation: Explanation) -> Document:
    """Give why a job is not running. Facts are what programs look at, by reason; the documentation lists them."""
    job = explanation.job
    return {
        "id": explanation.job_id,
        "name": job.name,
        "queue": job.queue,
        "state": job.state,
        "at": explanation.at,
        "runnable": explanation.is_runnable,
        "served": explanation.is_served,
        "reasons": [_reason_document(reason) for reason in explanation.reasons],
    }


def _reason_document(reason: Reason) -> Document:
    return {
        "code": reason.code,
        "kind": reason.kind,
        "blocks": reason.kind.blocks,
        "text": reason.text,
        "facts": dict(reason.facts),
        "repair": reason.repair,
    }
