"""What is wrong with the service: `GET /v1/doctor`."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from ...control.doctor.documents import report_document
from ..caller import Operator
from ..doctor_answers import Checkup
from ..documents import answer, problems
from ..replies import reply
from ..services import Services

router = APIRouter(tags=["process"])

_EXAMPLE = {
    "status": "warn",
    "at": "2026-11-29T12:00:00Z",
    "checks": [
        {
            "code": "database",
            "title": "The store answers",
            "level": "ok",
            "text": "answered in 3 ms",
            "facts": {"store": "postgres", "took_ms": 3},
            "fix": None,
            "commands": [],
        },
        {
            "code": "old_snapshots",
            "title": "Nobody holds vacuum back",
            "level": "warn",
            "text": "dead rows cannot be vacuumed away since the prepared transaction 'tx-17', 5021 s old, holds an old"
            " snapshot",
            "facts": {
                "holders": [
                    {"kind": "prepared", "name": "tx-17", "application": "shop", "age_ms": 5_021_000, "xids": 91_044}
                ]
            },
            "fix": "let it end, or end it; what it has not committed is undone",
            "commands": ["rollback prepared 'tx-17'"],
        },
    ],
}


@router.get(
    "/v1/doctor",
    operation_id="examineService",
    summary="What is wrong with the service?",
    response_model=None,
    responses={200: answer(Checkup, "What was found.", _EXAMPLE), **problems()},
)
async def examine_service(services: Services, _identity: Operator) -> Response:
    """Look the store and the fleet over and say what is wrong, each with a repair that works; changes nothing.

    Answers 200 whatever it finds, a store that is away included. Modules and ports are looked at by `outlast doctor`
    alone, on the machine where it is called.
    """
    return reply(report_document(await services.doctor.examine()))
