"""Following what changes, by topic: `GET /v1/events/stream`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.responses import Response, StreamingResponse

from ...control.topics import Topic, TopicStream
from ..caller import Reader
from ..documents import problems
from ..event_stream import MEDIA_TYPE, RETRY, EventStream, encode
from ..framework import refuse_repeated
from ..services import Services

router = APIRouter(tags=["process"])

_EXAMPLE = 'retry: 2000\n\nid: 1\nevent: jobs\ndata: {"topic":"jobs"}\n\n'


def _topic(value: object) -> object:
    if not isinstance(value, str) or value not in set(Topic):
        raise ValueError(f"must be one of {', '.join(Topic)}")
    return Topic(value)


class TopicParams(BaseModel):
    """The query of `GET /v1/events/stream`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    topics: list[Annotated[Topic, BeforeValidator(_topic, json_schema_input_type=Topic)]] = Field(
        default_factory=list, description="What to follow, repeated; everything without it."
    )


@router.get(
    "/v1/events/stream",
    operation_id="streamTopics",
    summary="Be told that something changes",
    response_class=StreamingResponse,
    response_model=None,
    responses={
        200: {
            "description": (
                "Server-sent events, named by their topic: something of it may have changed, look again. Never what."
                " `draining` when the process goes away."
            ),
            "content": {MEDIA_TYPE: {"schema": {"type": "string"}, "examples": {"example": {"value": _EXAMPLE}}}},
        },
        **problems(429),
    },
)
async def stream_topics(
    request: Request, services: Services, identity: Reader, params: Annotated[TopicParams, Query()]
) -> Response:
    """Name each topic once at the start, when something of it happens, and every five seconds in any case.

    Names only: what is shown is read again, with the rights of whoever reads. Names come at most four times a second,
    however much happens.
    """
    refuse_repeated(request, lists=frozenset({"topics"}))
    topics = frozenset(params.topics) or frozenset(Topic)
    holds = partial(services.auth.holds, identity)
    return EventStream(_opened(services.topics.follow(topics, caller=identity.name), holds))


@contextmanager
def _opened(
    following: AbstractContextManager[TopicStream], holds: Callable[[], Awaitable[bool]]
) -> Iterator[AsyncGenerator[bytes, None]]:
    with following as stream:
        yield _sent(stream, holds)


async def _sent(stream: TopicStream, holds: Callable[[], Awaitable[bool]]) -> AsyncGenerator[bytes, None]:
    yield RETRY
    number = 0
    async for named in stream.named():
        if not await holds():
            return  # whoever comes back is asked for a key
        for topic in named:
            number += 1
            yield encode(topic.value, {"topic": topic.value}, number=number)
    yield encode("draining", {"reason": "this process goes away; connect again"})
