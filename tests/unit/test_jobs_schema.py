"""The compiled schema says what the library says, and a refusal is found soon in a large payload."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field

from app.domain.errors import PayloadInvalid, SettingsInvalid
from app.jobs.payload_schema import SchemaCheck
from app.jobs.schema_explain import FORMATS, explaining_validator
from app.jobs.schema_fit import compile_fit


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Leaf(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["leaf"]
    name: Annotated[str, Field(min_length=1, max_length=3, pattern="^[a-z]+$")] = "a"


class Tree(BaseModel):
    kind: Literal["tree"] = "tree"
    children: list[Annotated[Leaf | Tree, Field(discriminator="kind")]] = []
    colour: Colour | None = None
    weight: Annotated[float, Field(gt=0, le=10)] = 1
    labels: Annotated[dict[str, int | str], Field(max_length=2)] = {}
    numbers: Annotated[list[int], Field(min_length=1, max_length=3)] = [1]
    flag: bool = False
    anything: Any = None


SCHEMA = Tree.model_json_schema()
scalars = st.sampled_from([None, True, False, 0, 1, -1, 1.0, 1.5, 11, "", "a", "abcd", "A", "red", "leaf", "tree"])
keys = st.sampled_from(["kind", "name", "children", "colour", "weight", "labels", "numbers", "flag", "anything", "x"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
)
fitting = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.just("tree"),
        "children": st.lists(st.fixed_dictionaries({"kind": st.sampled_from(["leaf", "tree", "x"])}), max_size=3),
        "colour": st.sampled_from([None, "red", "green"]),
        "weight": st.sampled_from([0, 0.5, 1, 10, 10.5, True]),
        "labels": st.dictionaries(st.text(max_size=2), st.sampled_from([1, "a", None]), max_size=3),
        "numbers": st.lists(st.sampled_from([1, 2.0, 2.5, True]), max_size=4),
        "flag": st.sampled_from([True, 1]),
        "anything": values,
    },
)


@settings(max_examples=300)
@given(values | fitting)
def test_the_compiled_schema_and_the_guided_library_agree_with_the_plain_library(value: Any) -> None:
    fits = compile_fit(SCHEMA, SCHEMA, FORMATS)
    assert fits is not None
    expected = Draft202012Validator(SCHEMA).is_valid(value)
    assert fits(value) == expected
    assert explaining_validator(SCHEMA).is_valid(value) == expected


@pytest.mark.parametrize(
    "schema",
    [
        {"prefixItems": [{"type": "integer"}], "items": {"type": "string"}},
        {"type": "array", "uniqueItems": True},
        {"enum": [1, "a", None]},
        {"const": 1.0},
        {"multipleOf": 3},
        {"patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
        {"propertyNames": {"maxLength": 1}},
        {"not": {"type": "string"}},
        {"if": {"type": "string"}, "then": {"minLength": 2}},
        {"properties": {"a": {"$dynamicRef": "#x"}, "b": {"multipleOf": 2}}, "$defs": {"x": {"$dynamicAnchor": "x"}}},
        {"$defs": {"a": {"$anchor": "here", "type": "integer"}}, "$ref": "#here"},
    ],
)
@given(value=st.data())
@settings(max_examples=30)
def test_what_is_not_compiled_is_left_to_the_library(schema: dict[str, Any], value: st.DataObject) -> None:
    drawn = value.draw(values | st.lists(scalars) | st.dictionaries(st.sampled_from(["a", "b", "ab"]), scalars))
    assert compile_fit(schema, schema, FORMATS) is None
    assert explaining_validator(schema).is_valid(drawn) == Draft202012Validator(schema).is_valid(drawn)


@pytest.mark.parametrize("schema", [True, {}, {"title": "any", "x-own": 3}])
def test_a_schema_without_rules_takes_anything(schema: object) -> None:
    fits = compile_fit({}, schema, FORMATS)
    assert fits is not None
    assert fits({"a": [1]})


def test_a_refusal_is_found_soon_in_a_large_payload() -> None:
    """Five milliseconds' work for the compiled schema; half a second allows for a busy machine, not for the library."""
    many = {"xs": [{"number": 1}] * 30_000 + [{"number": "x"}], "ys": [1] * 60_000 + ["x"]}
    number = {"type": "integer"}
    check = SchemaCheck(
        "a.job",
        {
            "properties": {
                "xs": {"items": {"type": "object", "properties": {"number": {"$ref": "#/$defs/number"}}}},
                "ys": {"anyOf": [{"type": "array", "items": number}, {"type": "null"}]},
            },
            "$defs": {"number": number},
        },
    )
    started = time.process_time()
    with pytest.raises(PayloadInvalid) as caught:
        check.check(many)
    assert time.process_time() - started < 0.5
    assert caught.value.details["errors"] == [
        {"pointer": "/xs/30000/number", "message": "must be of type integer"},
        {"pointer": "/ys", "message": "fits none of the allowed shapes, or more than one"},
    ]


@pytest.mark.parametrize("schema", [{"$ref": "#"}, {"anyOf": [{"$ref": "#"}, {"multipleOf": 2}]}])
def test_a_schema_without_end_is_refused_not_followed(schema: dict[str, Any]) -> None:
    with pytest.raises(SettingsInvalid, match="without end"):
        SchemaCheck("a.job", schema).check({})


def test_nothing_is_fetched() -> None:
    with pytest.raises(SettingsInvalid, match="example"):
        SchemaCheck("a.job", {"$ref": "https://example.invalid/schema.json"})


@pytest.mark.parametrize(
    ("schema", "payload", "message"),
    [
        ({"required": ["a", "b"]}, {"a": 1}, "lacks b"),
        ({"type": ["string", "null"]}, 3, "must be of type string or null"),
        ({"maximum": 3}, 4, "must hold to maximum 3"),
        (
            {"properties": {}, "additionalProperties": False},
            {"secret": 1},
            "has a field that the job type does not know",
        ),
        ({"const": "x" * 500}, "secret", "must hold to const " + '"' + "x" * 199),
    ],
)
def test_messages_name_the_rule_and_never_the_value(schema: dict[str, Any], payload: object, message: str) -> None:
    with pytest.raises(PayloadInvalid) as caught:
        SchemaCheck("a.job", schema).check(payload)
    assert caught.value.details["errors"] == [{"pointer": "", "message": message}]
    assert "secret" not in str(caught.value)
