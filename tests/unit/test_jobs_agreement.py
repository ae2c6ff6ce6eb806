"""What the API admits the worker's model takes, and what is well formed and the model takes the API admits."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import IntEnum, StrEnum
from functools import cache
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    UUID4,
    AnyUrl,
    AwareDatetime,
    Base64Bytes,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    create_model,
)

from app.domain.errors import PayloadInvalid
from app.jobs import job
from app.jobs.describe import document_text
from app.jobs.jobtype import JobType


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Colour(StrEnum):
    RED = "red"


class Line(BaseModel):
    model_config = ConfigDict(extra="forbid")
    sku: Annotated[str, Field(pattern="^[A-Z]+$")]
    count: Annotated[int, Field(ge=1)] = 1


class LookAhead(BaseModel):
    model_config = ConfigDict(regex_engine="python-re")
    code: Annotated[str, Field(pattern="^a(?=b)")]
    line: Annotated[str, Field(pattern="^[a-z]+$")]


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


TINY = 5e-324
moments = st.datetimes().map(datetime.isoformat)
zones = st.sampled_from(["", "Z", "z", "+02:00", "-0530", "+99:00", " ", "+2"])
texts = st.one_of(
    st.sampled_from(
        ["", "a", "ab", "ac", "A", "aé", "a\n", "AB\n", "red", "0", "1.5", "-7", "1_0", "NaN", "x/y", "AA=="]
    ),
    st.text(max_size=4),
    st.builds("{}{}".format, moments, zones),
    moments.map(lambda text: text.replace("T", " ")),
    moments.map(lambda text: text[:-3]),
    moments.map(lambda text: text.replace("-", "").replace(":", "")),
    st.dates().map(str),
    st.times().map(str),
    st.timedeltas().map(lambda span: f"PT{int(span.total_seconds())}S"),
    st.sampled_from(
        ["P1D", "PT", "1:00:00", "24:00:00", "2020-W01-1", "2020-02-30", "1600000000", "9999-12-31T23:59:60Z"]
    ),
    st.uuids().map(str),
    st.uuids(version=4).map(lambda uuid: uuid.hex),
    st.sampled_from(
        ["127.0.0.1", "300.0.0.1", "::1", "10.0.0.0/8", "https://example.com", "example.com", "mailto:a@b.c"]
    ),
)
integers = st.integers(-10, 10) | st.sampled_from([10**400, -(10**400), 2**63, -(2**63) - 1, 2**53 + 1])
floats = st.sampled_from([0.0, -0.0, 0.5, 0.25, 1.0, 3.0, 1e18, 1e19, -1e300, 9223372036854775808.0, TINY])
scalars = st.none() | st.booleans() | integers | floats | texts
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)
lines = st.fixed_dictionaries({"sku": texts}, optional={"count": integers | floats, "x": scalars})
trees = st.recursive(
    st.fixed_dictionaries({"name": texts | st.none()}),
    lambda inner: st.fixed_dictionaries({"name": texts}, optional={"children": st.lists(inner, max_size=2)}),
    max_leaves=5,
)

# Annotations, each with values that are of the JSON type its schema asks for.
FIELDS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "int": (int, integers | floats),
    "multiple": (Annotated[int, Field(multiple_of=3, gt=-7)], integers),
    # A model lets a double be a little off, more than nothing is: multiples are exact here.
    "halves": (Annotated[float, Field(multiple_of=0.5)], integers | floats.filter(lambda number: number != TINY)),
    "decimal": (Decimal, texts | integers | floats),
    "bool": (bool, st.booleans()),
    "datetime": (datetime, texts),
    "aware": (AwareDatetime, st.builds("{}{}".format, moments, zones)),
    "date": (date, texts),
    "time": (time, texts),
    "duration": (timedelta, texts),
    "uuid": (UUID, texts),
    "uuid4": (UUID4, texts),
    "ipv4": (ipaddress.IPv4Address, texts),
    "network": (ipaddress.IPv4Network, texts),
    "url": (AnyUrl, texts),
    "bytes": (Base64Bytes, texts),
    "letters": (Annotated[str, Field(pattern=r"^\p{L}+$")], texts),
    "lower": (Annotated[str, Field(pattern="^[a-z]+$", max_length=3)], texts),
    "flags": (Annotated[str, StringConstraints(pattern=re.compile("^[a-z]+$", re.IGNORECASE))], texts),
    "engine": (LookAhead, st.fixed_dictionaries({"code": texts, "line": texts})),
    "set": (set[int | str], st.lists(integers | texts, unique=True, max_size=4)),
    "tuple": (tuple[int, str], st.tuples(integers, texts).map(list) | st.lists(integers, max_size=3)),
    "keyed": (dict[Annotated[str, Field(pattern="^a")], int], st.dictionaries(texts, integers, max_size=2)),
    "numbered": (dict[int, str], st.dictionaries(st.integers().map(str), texts, max_size=2)),
    "named": (dict[UUID, int], st.dictionaries(texts, integers, max_size=2)),
    "enum": (Level | Colour | None, st.sampled_from([1, 2, 3, 1.0, "red", "blue", None])),
    "literal": (Literal[1, "a"] | None, st.sampled_from([1, 1.0, 2, "a", "b", None])),
    "lines": (list[Line], st.lists(lines, max_size=3)),
    "tree": (Tree, trees),
}


@cache
def sides(kind: str) -> tuple[Callable[[str], bool], Callable[[str], bool]]:
    """Give who admits a payload and who takes it: a process that has only the published document, and the worker."""
    model = create_model("Payload", value=(FIELDS[kind][0], ...), __config__=ConfigDict(extra="forbid"))

    def body(payload: BaseModel) -> None: ...

    body.__annotations__["payload"] = model
    published = JobType.parse(document_text(job("a.job")(body)))

    def admits(text: str) -> bool:
        try:
            published.check_payload(text, json.loads(text))
        except PayloadInvalid:
            return False
        return True

    def takes(text: str) -> bool:
        try:
            model.model_validate_json(text)
        except ValidationError:
            return False
        return True

    return admits, takes


@pytest.mark.parametrize("kind", FIELDS)
@settings(max_examples=25)
@given(data=st.data())
def test_what_the_api_admits_the_worker_takes(kind: str, data: st.DataObject) -> None:
    value = data.draw(FIELDS[kind][1] | anything)
    admits, takes = sides(kind)
    text = json.dumps({"value": value})
    assert not admits(text) or takes(text)


@pytest.mark.parametrize("kind", FIELDS)
@settings(max_examples=25)
@given(data=st.data())
def test_what_is_well_formed_and_the_worker_takes_the_api_admits(kind: str, data: st.DataObject) -> None:
    value = data.draw(FIELDS[kind][1])
    admits, takes = sides(kind)
    text = json.dumps({"value": value})
    assert admits(text) == takes(text)
