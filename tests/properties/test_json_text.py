"""The JSON admission against a slow reader written for nothing but these rules."""

from __future__ import annotations

import contextlib
import json
import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.domain.errors import JsonInvalid, OutlastError
from app.domain.json_text import JsonLimits, decode, elements, fingerprint, members

SMALL = JsonLimits(max_bytes=400, max_depth=3, max_keys=3, max_nodes=8, max_digits=5)

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)
TOKENS = (
    *("{", "}", "[", "]", ",", ":", '"', "\\", "\\\\", "\\u0000", "\\ud83d", "\\ude00", "\\n", "a", '"a":', '"b":1'),
    *("1", "-", "123456", "1e999", "1e5", ".5", "NaN", "Infinity", "null", " ", "\0", "\ud800", "é", "[]", "{}"),
)
hostile = st.lists(
    st.sampled_from(TOKENS),
    max_size=30,
).map("".join)


class _RefusedError(Exception):
    pass


def _reference(text: str, limits: JsonLimits) -> object:
    """Read JSON one rule at a time, with no regard for speed."""
    try:
        if len(text.encode()) > limits.max_bytes:
            raise _RefusedError
        value = json.loads(
            text, object_pairs_hook=lambda pairs: _object(pairs, limits), parse_int=lambda digits: _int(digits, limits)
        )
    except ValueError as exc:
        raise _RefusedError from exc
    if _nodes(value) > limits.max_nodes or _depth(value) > limits.max_depth:
        raise _RefusedError
    return value


def _object(pairs: list[tuple[str, object]], limits: JsonLimits) -> dict[str, object]:
    for key, _ in pairs:
        _text(key)
    if len({key for key, _ in pairs}) != len(pairs) or len(pairs) > limits.max_keys:
        raise _RefusedError
    return dict(pairs)


def _int(digits: str, limits: JsonLimits) -> int:
    if len(digits.lstrip("-")) > limits.max_digits:
        raise _RefusedError
    return int(digits)


def _text(text: str) -> None:
    if re.search("[\0\ud800-\udfff]", text):
        raise _RefusedError


def _nodes(value: object) -> int:
    match value:
        case dict():
            return 1 + sum(map(_nodes, value.values()))
        case list():
            return 1 + sum(map(_nodes, value))
        case str():
            _text(value)
        case float() if not math.isfinite(value):
            raise _RefusedError
    return 1


def _depth(value: object) -> int:
    match value:
        case dict():
            return 1 + max(map(_depth, value.values()), default=0)
        case list():
            return 1 + max(map(_depth, value), default=0)
    return 0


@given(hostile | values.map(json.dumps) | values.map(lambda value: json.dumps(value, ensure_ascii=False, indent=1)))
@example('"\\\\ud83d\\ude00"')
@example('{"a":{"a":1},"b":{"a":1}}')
@example("[[[[]]]]")
@example("123456{")
@example('["[[[[", "{{{{"]')
@example("[1,1,1,1,1,1,1,1]")
@example("[[],[],[],[],[],[],[]]")
def test_the_fast_reader_agrees_with_the_slow_one(text: str) -> None:
    try:
        expected = _reference(text, SMALL)
    except _RefusedError:
        with pytest.raises(OutlastError):
            decode(text, limits=SMALL)
    else:
        assert json.dumps(decode(text, limits=SMALL)) == json.dumps(expected)


@given(st.dictionaries(st.text(), values), st.sampled_from([None, 1, "\t"]), st.booleans())
def test_members_are_slices_that_read_as_their_values(
    value: dict[str, object], indent: int | str | None, escaped: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=escaped)
    found = members(text)
    assert list(found) == list(value)
    assert all(part in text and json.loads(part) == value[key] for key, part in found.items())


@given(st.lists(values), st.sampled_from([None, 1, "\t"]))
def test_elements_are_slices_that_read_as_their_values(value: list[object], indent: int | str | None) -> None:
    assert [json.loads(part) for part in elements(json.dumps(value, indent=indent))] == value


@given(hostile)
def test_slicing_anything_ends_in_slices_or_a_refusal(text: str) -> None:
    for cut in (members, elements):
        with contextlib.suppress(JsonInvalid):
            cut(text)


@given(values)
def test_spacing_order_and_escapes_do_not_change_a_fingerprint(value: object) -> None:
    respaced = json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)
    assert fingerprint(json.loads(respaced)) == fingerprint(value)
