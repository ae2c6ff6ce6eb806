"""Following one job live: `GET /v1/jobs/{id}/events`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import assert_never

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from ...control.changes import News, NewsKind, Position
from ...control.render import Document
from ...control.represent import attempt_document, job_document
from ...control.run_documents import line_document, progress_document, step_document
from ...control.streams import JobStream
from ...domain.job import JobId
from ...domain.snapshot import AttemptView, JobView
from ...domain.step import LogLine, ProgressView, StepView
from ..auth import Scope
from ..caller import Reader
from ..documents import ELSEWHERE, LAST_EVENT_ID, problems
from ..event_stream import KEEP_ALIVE, KEEP_ALIVE_SECONDS, MEDIA_TYPE, RETRY, EventStream, encode
from ..replies import root_of
from ..run_examples import STREAM
from ..services import Services
from .jobs import parse_job_id

router = APIRouter(tags=["runs"])

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
            "content": {MEDIA_TYPE: {"schema": {"type": "string"}, "examples": {"example": {"value": STREAM}}}},
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
    shown = _Shown(wanted, root=root_of(request), with_value=identity.may(Scope.PAYLOAD_READ))
    return EventStream(_opened(joining, shown))


@contextmanager
def _opened(joining: AbstractContextManager[JobStream], shown: _Shown) -> Iterator[AsyncGenerator[bytes, None]]:
    with joining as stream:
        yield _sent(stream, shown)


async def _sent(stream: JobStream, shown: _Shown) -> AsyncGenerator[bytes, None]:
    yield RETRY
    async for found in stream.news(KEEP_ALIVE_SECONDS):
        yield b"".join(map(shown.encode, found)) or KEEP_ALIVE
    if stream.is_stopped:
        yield encode("draining", _DRAINING)


class _Shown:
    """What one caller is shown of a job's news."""

    def __init__(self, job_id: JobId, *, root: str, with_value: bool) -> None:
        self._job_id = job_id
        self._root = root
        self._with_value = with_value

    def encode(self, news: News) -> bytes:
        """Give a piece of news as an event."""
        return encode(news.kind.value, self._document(news), number=news.number)

    def _document(self, news: News) -> Document:
        if news.kind is NewsKind.END:
            return {"id": self._job_id, "state": news.item.state if isinstance(news.item, JobView) else None}
        match news.item:
            case JobView() as view:
                return job_document(view, with_payload=False, root=self._root)
            case AttemptView() as attempt:
                return attempt_document(attempt)
            case StepView() as step:
                return step_document(step, with_value=self._with_value)
            case ProgressView() as progress:
                return progress_document(progress)
            case LogLine() as line:
                return line_document(line)
            case None:
                return {}
            case _:
                assert_never(news.item)
