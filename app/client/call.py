"""One request, described: what is sent, and how its answer is read. Nothing here sends anything.

The modules of `calls` make these; the two shells, sync and async, send them. That is all the two differ in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

T = TypeVar("T")
ModelT = TypeVar("ModelT", bound=BaseModel)

Document: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:  # noqa: ANN401 - JSON
        """Give the body's value; ValueError where it is none."""
        return json.loads(self.body)

    @property
    def retry_after_seconds(self) -> float | None:
        """Give the seconds to let pass before the next try; None where nothing is said, or a date is."""
        said = self.headers.get("retry-after", "")
        return float(said) if said.isascii() and said.isdecimal() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """A request and how its answer is read.

    `read` is given answers below 400 only. `wait_seconds`: how much longer than usual its answer may take;
    `most_seconds` bounds all of its tries where the caller's own time does. `is_kept`: the service knows a repetition,
    so that trying again is safe; without, nothing is repeated that may have been done.
    """

    method: str
    path: str
    read: Callable[[Answer], T]
    query: Mapping[str, object] = field(default_factory=dict)
    body: Document | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    wait_seconds: float = 0.0
    most_seconds: float = inf
    is_kept: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """One page of a list, and the request for the one that follows."""

    items: tuple[T, ...]
    following: Call[Page[T]] | None


def path(*parts: object) -> str:
    """Give the path of these parts; each stays one part, whatever is in it."""
    return "/" + "/".join(quote(str(part), safe="") for part in parts)


def given(**fields: object) -> dict[str, object]:
    """Give the fields that are not None: what is left out is the service's to decide."""
    return {name: value for name, value in fields.items() if value is not None}


def get(where: str, model: type[ModelT], /, **query: object) -> Call[ModelT]:
    """Read one thing."""
    return Call(method="GET", path=where, read=_one(model), query=given(**query))


def get_items(where: str, model: type[ModelT], /, **query: object) -> Call[tuple[ModelT, ...]]:
    """Read a list that comes in one piece."""
    return Call(method="GET", path=where, read=lambda answer: _items(answer, model), query=given(**query))


def get_pages(
    where: str, model: type[ModelT], cursor: tuple[str, str] = ("cursor", "next_cursor"), /, **query: object
) -> Call[Page[ModelT]]:
    """Read the first page of a list; `cursor` is what a cursor is called in the query and in the answer."""
    return _pages(where, model, cursor, given(**query))


def _pages(where: str, model: type[ModelT], cursor: tuple[str, str], query: Document) -> Call[Page[ModelT]]:
    def read(answer: Answer) -> Page[ModelT]:
        after = answer.json().get(cursor[1])
        following = None if after is None else _pages(where, model, cursor, {**query, cursor[0]: after})
        return Page(items=_items(answer, model), following=following)

    return Call(method="GET", path=where, read=read, query=query)


def post(where: str, model: type[ModelT], /, **fields: object) -> Call[ModelT]:
    """Do something; the fields that are not None are its body."""
    return Call(method="POST", path=where, read=_one(model), body=given(**fields))


def _one(model: type[ModelT]) -> Callable[[Answer], ModelT]:
    return lambda answer: model.model_validate_json(answer.body)


def _items(answer: Answer, model: type[ModelT]) -> tuple[ModelT, ...]:
    return tuple(model.model_validate(item) for item in answer.json()["items"])
