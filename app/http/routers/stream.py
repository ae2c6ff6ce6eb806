"""Following one job live: `GET /v1/jobs/{id}/events`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from ...control.changes import News, Position, news_document
from ...control.render import Document
from ...control.streams import JobStream
from ...domain.job import JobId
from ..auth import Scope
from ..caller import Reader
from ..documents import ELSEWHERE, LAST_EVENT_ID, STREAMED, problems
from ..event_stream import KEEP_ALIVE, KEEP_ALIVE_SECONDS, MEDIA_TYPE, RETRY, EventStream, encode
from ..replies import root_of
from ..run_examples import STREAM
from ..services import Services
from .jobs import parse_job_id

router = APIRouter(tags=["runs"])

# However quiet a job is: a key that was revoked meanwhile follows it no longer.
_LOOK_SECONDS = 0.5

_DRAINING: Document = {"reason": "this process goes away; connect again"}


@router.get(
    "/v1/jobs/{job_id}/events",
    operation_id="streamJob",
    summary="Follow a job live",
    response_class=StreamingResponse,
    response_model=None,
    responses={
        200: {
            "description": (
                "Server-sent events until the job ends: `state`, `attempt`, `step`, `progress`, `log`, and last `end`;"
                " or `draining` when the process goes away. `StreamedEvents` has the data of each by its name."
            ),
            "content": {MEDIA_TYPE: {"schema": STREAMED, "examples": {"example": {"value": STREAM}}}},
        },
        303: ELSEWHERE,
        **problems(404, 429),
    },
    openapi_extra={"parameters": [LAST_EVENT_ID]},
)
async def stream_job(request: Request, job_id: str, services: Services, identity: Reader) -> Response:
    """Send the job as it stands, everything recorded of its run, and then what happens, until it has ended.

    `state` carries the job without payload and result, `attempt`, `step`, `log` and `progress` what their lists have,
    `end` the id and the last state. Every `id` is larger than those before, also over reconnections: with
    `Last-Event-ID` only what came after it is sent, and the state and the progress as they are. A comment every 15
    seconds keeps the connection; `draining` asks to connect again, which reaches another process.
    """
    wanted = parse_job_id(job_id)
    position = Position.read(request.headers.get("last-event-id", ""))
    joining = await services.runs.stream(wanted, tenant=identity.tenant, caller=identity.name, position=position)
    with_value = identity.may(Scope.PAYLOAD_READ)
    redact = await services.jobs.redaction.of_job(wanted, tenant=identity.tenant) if with_value else ()
    encoded = partial(_encoded, wanted, root=root_of(request), with_value=with_value, redact=redact)
    return EventStream(_opened(joining, encoded, partial(services.auth.holds, identity)))


@contextmanager
def _opened(
    joining: AbstractContextManager[JobStream], encoded: Callable[[News], bytes], holds: Callable[[], Awaitable[bool]]
) -> Iterator[AsyncGenerator[bytes, None]]:
    with joining as stream:
        yield _sent(stream, encoded, holds)


async def _sent(
    stream: JobStream, encoded: Callable[[News], bytes], holds: Callable[[], Awaitable[bool]]
) -> AsyncGenerator[bytes, None]:
    yield RETRY
    quiet = 0.0
    async for found in stream.news(_LOOK_SECONDS):
        if not await holds():
            return  # whoever comes back is asked for a key
        quiet = 0.0 if found else quiet + _LOOK_SECONDS
        if quiet >= KEEP_ALIVE_SECONDS:
            quiet = 0.0
            yield KEEP_ALIVE
        for one in found:  # one by one: what is sent is taken before more is made
            if stream.is_stopped:
                break  # whoever comes back gets the rest
            yield encoded(one)
    if stream.is_stopped:
        yield encode("draining", _DRAINING)


def _encoded(job_id: JobId, news: News, *, root: str, with_value: bool, redact: Sequence[str]) -> bytes:
    document = news_document(news, job_id, with_value=with_value, root=root, redact=redact)
    return encode(news.kind.value, document, number=news.number)
