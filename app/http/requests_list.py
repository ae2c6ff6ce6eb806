"""The query of `GET /v1/jobs`: the filters of bulk operations, and those that only a list has."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import BeforeValidator, Field

from ..control.fleet import LARGEST_WORKER_ID
from ..control.jobs import ListQuery
from ..domain.errors import RequestInvalid
from ..domain.job import MAX_TAGS, JobId, WorkerId
from .includes import LARGE, ListIncludes
from .requests import Cursor, Instant, JobFilterFields, Key, Tag, UuidText, whole_number, worker_number

LISTS = frozenset({"state", "tag", "tag_all", "include"})
Sort: TypeAlias = Literal["-created_at", "created_at", "run_at", "-run_at", "finished_at", "-finished_at"]
# Asked for by name, and refused with the reason.
UNSORTED = "duration"
# With payloads and results a page is never longer.
MOST_WITH_PAYLOADS = 20


def _sort(value: object) -> object:
    if value in get_args(Sort) or value in {UNSORTED, f"-{UNSORTED}"}:
        return value
    raise ValueError(f"must be one of {', '.join(get_args(Sort))}")


def _yes(value: object) -> object:
    if value in {"true", "false"}:
        return value == "true"
    if isinstance(value, bool):
        return value
    raise ValueError("must be true or false")


class ListParams(JobFilterFields):
    """The query of `GET /v1/jobs`."""

    tag: list[Tag] = Field(default_factory=list, max_length=MAX_TAGS, description="Any of these tags.")
    tag_all: list[Tag] = Field(default_factory=list, max_length=MAX_TAGS, description="All of these tags.")
    key: Key | None = Field(default=None, description="The idempotency key.")
    parent_id: UuidText | None = Field(default=None, description="The job they belong to.")
    worker_id: Annotated[int | None, BeforeValidator(worker_number)] = Field(
        default=None, ge=1, le=LARGEST_WORKER_ID, description="The worker they run on."
    )
    error_code: Key | None = Field(
        default=None, description="The code of the error it shows: of its last attempt, or of its end while it waited."
    )
    finished_after: Instant | None = Field(default=None, description="Ended then or later.")
    finished_before: Instant | None = Field(default=None, description="Ended earlier.")
    run_at_after: Instant | None = Field(default=None, description="Due then or later.")
    run_at_before: Instant | None = Field(default=None, description="Due earlier.")
    sort: Annotated[str, BeforeValidator(_sort, json_schema_input_type=Sort)] = Field(
        default="-created_at",
        description="`run_at` orders delayed jobs, with `state=delayed`; `finished_at` dead and cancelled ones, with"
        " these states alone. `-`: the latest first.",
    )
    include: ListIncludes = Field(
        default_factory=list,
        max_length=3,
        description="`payload`, `result`, for keys with the scope `payload:read`: at most 20 jobs a page then. `error`:"
        " its traceback, too. Several, or one with commas.",
    )
    count: Annotated[bool, BeforeValidator(_yes, json_schema_input_type=bool)] = Field(
        default=False, description="Also count what fits, up to 10,000."
    )
    limit: Annotated[int, BeforeValidator(whole_number)] = Field(default=50, ge=1, le=200)
    cursor: Cursor | None = Field(
        default=None,
        description="`next_cursor` of the page before, or `prev_cursor` of the page after.",
    )

    def query(self, tenant: str | None) -> ListQuery:
        """Give the query without its page."""
        return ListQuery(
            states=frozenset(self.state),
            name=self.name,
            queue=self.queue,
            tenant=tenant,
            created_after=self.created_after,
            created_before=self.created_before,
            finished_after=self.finished_after,
            finished_before=self.finished_before,
            run_at_after=self.run_at_after,
            run_at_before=self.run_at_before,
            tags_any=tuple(sorted(set(self.tag))),
            tags_all=tuple(sorted(set(self.tag_all))),
            key=self.key,
            parent_id=None if self.parent_id is None else JobId(self.parent_id),
            worker_id=None if self.worker_id is None else WorkerId(self.worker_id),
            error_code=self.error_code,
            limit=self._limit(),
        )

    def _limit(self) -> int:
        """Give how many jobs are in a page.

        Raises:
            RequestInvalid: more of them than may be, with their payloads.
        """
        if LARGE.isdisjoint(self.include) or self.limit <= MOST_WITH_PAYLOADS:
            return self.limit
        if "limit" in self.model_fields_set:
            raise RequestInvalid(
                f"a page with payloads or results has at most {MOST_WITH_PAYLOADS} jobs, not {self.limit}",
                fix=f"ask for limit={MOST_WITH_PAYLOADS}, or read payloads with GET /v1/jobs/{{id}}",
                errors=[{"in": "query", "pointer": "/limit", "detail": f"must be at most {MOST_WITH_PAYLOADS}"}],
            )
        return MOST_WITH_PAYLOADS
