"""API keys: `GET` and `POST /v1/api-keys`, one of them, its rotation and its end."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ...control.keys import KeyOrder, key_document
from ...domain.audit import Acting
from ..answers_keys import ApiKey, ApiKeyList, IssuedApiKey
from ..body import read_body, read_optional_body, refuse_request_key
from ..caller import Admin
from ..documents import answer, body, problems
from ..framework import refuse_repeated
from ..replies import reply, root_of
from ..requests_actions import DeleteParams
from ..requests_keys import KeyBody, RotateBody
from ..services import Services

router = APIRouter(tags=["api keys"])

_ID = "5f0c8a1be2d34976"
_KEY = {
    "id": _ID,
    "label": "shop backend",
    "tenant": "default",
    "scopes": ["jobs:read", "jobs:write"],
    "queues": None,
    "last4": "9c1e",
    "previous_last4": None,
    "previous_until": None,
    "created_at": "2026-11-29T12:00:00Z",
    "created_by": "bootstrap",
    "rotated_at": None,
    "expires_at": None,
    "revoked_at": None,
    "revoked_by": None,
    "last_used_at": None,
}
_ISSUED = _KEY | {"token": f"ol_{_ID}_…"}
_EXAMPLES = {
    "backend": {"label": "shop backend", "scopes": ["jobs:read", "jobs:write"]},
    "on call": {"label": "on call", "scopes": ["jobs:read", "operate"], "expires_at": "2126-11-29T12:00:00Z"},
}
_ROTATIONS = {"a day": {}, "an hour, once": {"overlap_ms": 3_600_000, "replaces": "9c1e"}}


@router.get(
    "/v1/api-keys",
    operation_id="listApiKeys",
    summary="List API keys, newest first",
    response_model=None,
    responses={200: answer(ApiKeyList, "At most 1,000 keys.", {"items": [_KEY]}), **problems(501)},
)
async def list_api_keys(services: Services, identity: Admin) -> Response:
    """Give the keys of the caller's tenant, those that are revoked or expired too; never a secret."""
    return reply({"items": [key_document(key) for key in await services.keys.list(tenant=identity.tenant)]})


@router.post(
    "/v1/api-keys",
    operation_id="createApiKey",
    summary="Make an API key",
    status_code=201,
    response_model=None,
    responses={
        201: answer(IssuedApiKey, "The key, with its token this once.", _ISSUED, Location="The key."),
        **problems(400, 501, has_body=True),
    },
    openapi_extra=body(KeyBody, _EXAMPLES, is_required=True),
)
async def create_api_key(request: Request, services: Services, identity: Admin) -> Response:
    """Make a key that may do no more than the caller, and no longer. Its `token` is answered once and never again."""
    refuse_request_key(request)
    sent = await read_body(request, payload_max_bytes=services.payload_max_bytes)
    asked = sent.parse(KeyBody)
    order = KeyOrder(
        label=asked.label,
        tenant=asked.tenant or identity.tenant,
        scopes=frozenset(asked.scopes),
        queues=identity.queues if asked.queues is None else frozenset(asked.queues),
        expires_at=asked.expires_at,
    )
    by = Acting(actor=identity.name, reason=asked.reason)
    issued = await services.keys.create(order, by=by, grant=identity)
    headers = {"Location": f"{root_of(request)}/v1/api-keys/{issued.key.id}"}
    return reply(key_document(issued.key) | {"token": issued.token}, status=201, headers=headers)


@router.get(
    "/v1/api-keys/{key_id}",
    operation_id="getApiKey",
    summary="Describe an API key",
    response_model=None,
    responses={200: answer(ApiKey, "The key.", _KEY), **problems(404, 501)},
)
async def get_api_key(key_id: str, services: Services, identity: Admin) -> Response:
    """Give one key of the caller's tenant; never its secret."""
    return reply(key_document(await services.keys.find(key_id, tenant=identity.tenant)))


@router.post(
    "/v1/api-keys/{key_id}/rotate",
    operation_id="rotateApiKey",
    summary="Give an API key a new secret",
    response_model=None,
    responses={
        200: answer(IssuedApiKey, "The key, with its new token this once.", _ISSUED),
        **problems(400, 404, 412, 501, has_body=True),
    },
    openapi_extra=body(RotateBody, _ROTATIONS, is_required=False),
)
async def rotate_api_key(request: Request, key_id: str, services: Services, identity: Admin) -> Response:
    """Give a key a new secret; the one before goes on being taken for the overlap, one before that no longer.

    Asked again because its answer was lost, it ends nothing where `replaces` names the secret that was meant.
    """
    refuse_request_key(request)
    sent = await read_optional_body(request, payload_max_bytes=services.payload_max_bytes)
    asked = sent.parse(RotateBody)
    issued = await services.keys.rotate(
        key_id,
        tenant=identity.tenant,
        by=Acting(actor=identity.name, reason=asked.reason),
        overlap=timedelta(milliseconds=asked.overlap_ms),
        grant=identity,
        replaces=asked.replaces,
    )
    return reply(key_document(issued.key) | {"token": issued.token})


@router.delete(
    "/v1/api-keys/{key_id}",
    operation_id="revokeApiKey",
    summary="Revoke an API key",
    response_model=None,
    responses={
        200: answer(ApiKey, "The key, over for good.", _KEY | {"revoked_at": "2026-11-29T13:00:00Z"}),
        **problems(400, 404, 501),
    },
)
async def revoke_api_key(
    request: Request, key_id: str, services: Services, identity: Admin, params: Annotated[DeleteParams, Query()]
) -> Response:
    """End a key and all its secrets for good: here at once, in every process within five seconds. It stays listed."""
    refuse_repeated(request)
    refuse_request_key(request)
    by = Acting(actor=identity.name, reason=params.reason)
    return reply(key_document(await services.keys.revoke(key_id, tenant=identity.tenant, by=by)))
