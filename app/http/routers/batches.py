"""`POST /v1/job-batches`."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from ...control.jobs import EnqueueRequest, Placed
from ...control.render import Document
from ...control.represent import links_of
from ...domain.errors import OutlastError, RequestInvalid
from ...domain.json_text import elements, members
from ..auth import Identity
from ..body import Body, read_batch
from ..caller import Writer, caller_of
from ..documents import IDEMPOTENCY_KEY, JOB_ID, LINKS_EXAMPLE, answer, body, problems
from ..once import OnceRoute, claim_of
from ..problems import problem_document
from ..replies import reply, root_of
from ..requests_batch import Batch, BatchBody, BatchEnvelope
from ..services import HttpServices, Services
from .enqueue import as_sent, asked_of

router = APIRouter(tags=["jobs"], route_class=OnceRoute)

_STORED = {
    "id": JOB_ID,
    "run_id": JOB_ID,
    "name": "demo.count_lines",
    "deduped": False,
    "key_expires_at": None,
    "links": LINKS_EXAMPLE,
}
_EXAMPLES = {
    "all": {"jobs": [{"name": "demo.count_lines", "payload": {}}, {"name": "demo.count_lines", "payload": {}}]},
    "each": {"jobs": [{"name": "demo.count_lines", "payload": {}, "idempotency_key": "a"}], "atomic": False},
}
_Asked = list[EnqueueRequest | OutlastError]


@router.post(
    "/v1/job-batches",
    operation_id="enqueueBatch",
    summary="Enqueue many jobs",
    response_model=None,
    responses={
        200: answer(
            Batch, "What became of each.", {"items": [{"index": 0, "status": 201, "job": _STORED, "problem": None}]}
        ),
        **problems(404, 409, 429, has_body=True),
    },
    openapi_extra=body(BatchBody, _EXAMPLES, is_required=True) | {"parameters": [IDEMPOTENCY_KEY]},
)
async def enqueue_batch(request: Request, services: Services, identity: Writer) -> Response:
    """Store up to 1,000 jobs, all or none, durable when the answer arrives; or with `atomic: false` each for itself.

    Of a batch that is all or none the first refusal is the answer, with the `index` of its job. `Idempotency-Key` is
    for such batches; without `atomic`, give each job an `idempotency_key`.
    """
    sent = await read_batch(request)
    envelope = sent.parse(BatchEnvelope)
    asked = _asked(sent, envelope, request, identity)
    if not envelope.atomic:
        _refuse_key(request)
        return await _each(request, services, identity, asked)
    for index, one in enumerate(asked):
        if isinstance(one, OutlastError):
            raise _at(one, index)
    wanted = [one for one in asked if isinstance(one, EnqueueRequest)]
    claim = await claim_of(request, services, identity, sent)
    try:
        placed = await services.jobs.enqueue_all(
            wanted, tenant=identity.tenant, check_queue=identity.check_queue, claim=claim
        )
    except OutlastError as exc:
        place = exc.details.get("index")
        raise (_at(as_sent(exc), place) if isinstance(place, int) else exc) from exc
    return reply({"items": [_item(request, index, one) for index, one in enumerate(placed)]})


async def _each(request: Request, services: HttpServices, identity: Identity, asked: _Asked) -> Response:
    wanted = [one for one in asked if isinstance(one, EnqueueRequest)]
    found = iter(await services.jobs.enqueue_each(wanted, tenant=identity.tenant, check_queue=identity.check_queue))
    verdicts = [one if isinstance(one, OutlastError) else next(found) for one in asked]
    return reply({"items": [_item(request, index, verdict) for index, verdict in enumerate(verdicts)]})


def _asked(sent: Body, envelope: BatchEnvelope, request: Request, identity: Identity) -> _Asked:
    """Give what each job asks for, or what it is refused for."""
    texts = elements(sent.texts["jobs"])
    asked: _Asked = []
    for values, text in zip(envelope.jobs, texts, strict=True):
        try:
            asked.append(asked_of(_one(values, text), request, identity))
        except OutlastError as error:
            asked.append(error)
    return asked


def _one(values: object, text: str) -> Body:
    if not isinstance(values, dict):
        raise RequestInvalid(
            "the job is not a JSON object", fix='send objects like {"name": "…", "payload": {}}', pointer=""
        )
    return Body(values=values, texts=members(text))


def _at(error: OutlastError, index: int) -> OutlastError:
    """Let an error of one job point into the batch."""
    details = dict(error.details) | {"index": index}
    errors = _moved(details.get("errors"), index)
    if errors is not None:
        details["errors"] = errors
    elif isinstance(details.get("pointer"), str):
        details["pointer"] = f"/jobs/{index}{details['pointer']}"
    return type(error)(error.cause, fix=error.fix, **details)


def _moved(errors: object, index: int) -> list[object] | None:
    if not isinstance(errors, list):
        return None
    return [
        each | {"pointer": f"/jobs/{index}{each['pointer']}"} if isinstance(each, dict) else each for each in errors
    ]


def _item(request: Request, index: int, verdict: Placed | OutlastError) -> Document:
    if isinstance(verdict, OutlastError):
        problem = problem_document(_at(as_sent(verdict), index), caller_of(request.scope).facts)
        return {"index": index, "status": problem["status"], "job": None, "problem": problem}
    job_id = str(verdict.answer.id)
    job = {
        "id": job_id,
        "run_id": str(verdict.answer.run_id),
        "name": verdict.job.name,
        "deduped": verdict.answer.deduped,
        "key_expires_at": verdict.answer.key_expires_at,
        "links": links_of(job_id, root_of(request)),
    }
    return {"index": index, "status": 200 if verdict.answer.deduped else 201, "job": job, "problem": None}


def _refuse_key(request: Request) -> None:
    if "idempotency-key" in request.headers:
        raise RequestInvalid(
            "Idempotency-Key is for batches that are stored all or none",
            fix="leave it out and give each job an idempotency_key, or leave `atomic` out",
            errors=[{"in": "header", "pointer": "/Idempotency-Key", "detail": "not with atomic: false"}],
        )
