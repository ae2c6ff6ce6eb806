"""The published job types: `GET /v1/job-types` and `/v1/job-types/{name}`."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from ...control.represent import job_type_document
from ..answers import JobTypeDocument, JobTypeList
from ..caller import Reader
from ..documents import answer, problems
from ..replies import reply
from ..services import Services

router = APIRouter(tags=["job types"])

_EXAMPLE = {"name": "demo.count_lines", "code_version": "1.4.2", "published_at": "2026-11-29T12:00:00Z"}


@router.get(
    "/v1/job-types",
    operation_id="describeJobTypes",
    summary="List the job types workers have published",
    response_model=None,
    responses={200: answer(JobTypeList, "Every type by name.", {"items": [_EXAMPLE]}), **problems()},
)
async def describe_job_types(services: Services, _identity: Reader) -> Response:
    """Give every published job type: the schemas of its payload and result, its policy, its words."""
    return reply({"items": [job_type_document(each) for each in await services.catalogue.all()]})


@router.get(
    "/v1/job-types/{name}",
    operation_id="describeJobType",
    summary="Describe one job type",
    response_model=None,
    responses={200: answer(JobTypeDocument, "The type.", _EXAMPLE), **problems(404)},
)
async def describe_job_type(name: str, services: Services, _identity: Reader) -> Response:
    """Give the newest publication of one job type."""
    return reply(job_type_document(await services.catalogue.describe(name)))
