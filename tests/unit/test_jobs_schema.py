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
from app.jobs.schema_explain import explaining_validator
from app.jobs.schema_fit import compile_fit
from app.jobs.schema_texts import FORMATS


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
        {"prefixItems": [{"type": "integer"}, True], "maxItems": 2},
        {"type": "array", "uniqueItems": True},
        {"type": "array", "uniqueItems": False},
        {"enum": [1, "a", None, [1], {"a": 1.0}]},
        {"const": 1.0},
        {"multipleOf": 3},
        {"multipleOf": 0.5},
        {"patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
        {"patternProperties": {"^a": {"type": "integer"}}, "properties": {"a": {"minimum": 1}}},
        {"propertyNames": {"maxLength": 1}},
        {"properties": {"b": {"multipleOf": 2}}, "patternProperties": {"^a": True}, "additionalProperties": False},
    ],
)
@given(value=st.data())
@settings(max_examples=50)
def test_every_word_means_what_the_plain_library_takes_it_for(schema: dict[str, Any], value: st.DataObject) -> None:
    drawn = value.draw(values | st.lists(scalars) | st.dictionaries(st.sampled_from(["a", "b", "ab"]), scalars))
    fits = compile_fit(schema, schema, FORMATS)
    assert fits is not None
    expected = Draft202012Validator(schema).is_valid(drawn)
    assert fits(drawn) == expected
    assert explaining_validator(schema).is_valid(drawn) == expected


@pytest.mark.parametrize(
    "schema",
    [
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


HUGE = 10**400  # no double is as large


@pytest.mark.parametrize(
    ("of", "value", "fits"),
    [
        (0.5, HUGE, True),
        (3, HUGE, False),
        (3, 3 * HUGE, True),
        (0.1, 0.3, True),
        (0.1, 0.35, False),
        (0.5, 1e300, True),
        (1e-300, 1e300, True),
        (7.5, HUGE, False),
    ],
)
@pytest.mark.parametrize("uncompiled", [{}, {"not": {"type": "string"}}])
def test_multiples_are_exact_however_large_the_number(
    of: float, value: float, fits: bool, uncompiled: dict[str, Any]
) -> None:
    schema = {"type": "number", "multipleOf": of} | uncompiled
    assert admits(schema, value) is fits


@pytest.mark.parametrize("uncompiled", [{}, {"not": {"type": "string"}}])
@pytest.mark.parametrize("is_unique", [True, False])
def test_unique_items_take_time_that_grows_with_the_payload(uncompiled: dict[str, Any], is_unique: bool) -> None:
    """Numbers that share one hash are no slower; half a second allows for a busy machine, not for a square."""
    shared = [number * (2**61 - 1) for number in range(10_000)]
    items: list[Any] = [*shared, *({"a": [number]} for number in range(10_000)), True, 1, "1"]
    started = time.process_time()
    assert admits({"uniqueItems": True} | uncompiled, items if is_unique else [*items, {"a": [1.0]}]) is is_unique
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        (r"^\p{L}+$", "aé", True),
        (r"^\p{L}+$", "a1", False),
        ("^[a-z]+$", "a\n", False),
        ("^a(?=b)", "ab", True),
        ("^a(?=b)", "ac", False),
    ],
)
@pytest.mark.parametrize("uncompiled", [{}, {"not": {"type": "array"}}])
def test_a_pattern_is_what_the_models_own_engine_finds(
    pattern: str, text: str, fits: bool, uncompiled: dict[str, Any]
) -> None:
    assert admits({"pattern": pattern} | uncompiled, text) is fits
    assert admits({"patternProperties": {pattern: True}, "additionalProperties": False} | uncompiled, {text: 1}) is fits


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ({"properties": {"code": {"anyOf": [{"pattern": "("}]}}}, "/properties/code/anyOf/0/pattern"),
        ({"$defs": {"a": {"patternProperties": {"[": True}}}}, "/$defs/a/patternProperties"),
    ],
)
def test_a_pattern_that_nobody_can_read_is_refused_with_its_place(schema: dict[str, Any], where: str) -> None:
    with pytest.raises(SettingsInvalid, match=r"a\.job") as caught:
        SchemaCheck("a.job", schema)
    assert where in caught.value.cause


def test_what_only_looks_like_a_pattern_is_none() -> None:
    schema = {"properties": {"pattern": {"default": {"pattern": "("}, "enum": [{"pattern": "("}]}}}
    assert admits(schema, {"pattern": {"pattern": "("}})


def admits(schema: dict[str, Any], payload: object) -> bool:
    try:
        SchemaCheck("a.job", schema).check(payload)
    except PayloadInvalid:
        return False
    return True


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
