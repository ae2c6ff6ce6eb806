"""Which JSON is let in, where a refusal points, and what comes back of it."""

from __future__ import annotations

import contextlib
import json
import time

import pytest

from app.domain.errors import JsonInvalid, OutlastError, PayloadTooLarge
from app.domain.json_text import (
    DEFAULT,
    JsonLimits,
    decode,
    elements,
    fingerprint,
    members,
    read_text,
)

FULL = 256 * 1024


@pytest.mark.parametrize(
    "text",
    [
        "null",
        " [1, 2]\n",
        '"\\ud83d\\ude00"',
        '"\\\\ud800 and \\\\u0000 are only text here"',
        '{"a": 1, "A": 1}',
        str(2**60 + 1),
        "1.5e300",
        "-0.0",
        "1" + "0" * 400,
        "9" * 4300,
        "-" + "9" * 4300,
        "1e-999",
        "0." + "0" * 5000 + "1",
        '"' + "[" * 1000 + '"',
        "[" * 64 + "]" * 64,
        "[" + ",".join(["1"] * 99_999) + "]",
        "[" + ",".join(["[]"] * 80_000) + "]",
        json.dumps({str(key): key for key in range(10_000)}),
        '"' + "x" * (FULL - 2) + '"',
        '"é ￿ 😀 \\u0001"',
    ],
    ids=lambda text: text[:20],
)
def test_json_that_can_be_kept_is_let_in(text: str) -> None:
    assert decode(text) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("NaN", {"pointer": ""}),
        ('{"a": [1, NaN]}', {"pointer": "/a/1"}),
        ("[Infinity]", {"pointer": "/0"}),
        ("[-Infinity]", {"pointer": "/0"}),
        ('{"a/b": {"~": 1e999}}', {"pointer": "/a~1b/~0"}),
        ("[-1e999]", {"pointer": "/0"}),
        ("9" * 400 + ".5", {"pointer": ""}),
        ('{"tenant": "a", "tenant": "b"}', {"pointer": "/tenant"}),
        ('[{"a": 1}, {"b": {"c": 1, "\\u0063": 2}}]', {"pointer": "/1/b/c"}),
        ('{"\\u0000": 1}', {"offset": 2}),
        ('["a\\u0000"]', {"offset": 3}),
        ('"\\\\\\u0000"', {"offset": 3}),
        ('"a\0"', {"offset": 2}),
        ('"\\ud800"', {"offset": 1}),
        ('"\\udc00\\ud800"', {"offset": 1}),
        ('"\\ud83d\\\\ude00"', {"offset": 1}),
        ('"\\\\ud83d\\ude00"', {"offset": 8}),
        ('"\ud800"', {"offset": 1}),
        ('{"\udc00": 1}', {"offset": 2}),
        ("9" * 4301, {"pointer": ""}),
        ('{"a": -' + "9" * 4301 + "}", {"pointer": "/a"}),
        ("[" * 65 + "]" * 65, {"offset": 64}),
        ('{"a":' * 65 + "1" + "}" * 65, {"offset": 320}),
        ("[" + ",".join(["1"] * 100_000) + "]", {"pointer": ""}),
        (json.dumps({"a": {str(key): 1 for key in range(10_001)}}), {"pointer": "/a"}),
        ("\ufeff{}", {"offset": 0}),
        ("", {"offset": 0}),
        ("{} {}", {"offset": 3}),
        ("{'a': 1}", {"offset": 1}),
        ("[1,]", {"offset": 3}),
        ("[01]", {"offset": 2}),
        ('"\t"', {"offset": 1}),
        ('"\\x"', {"offset": 1}),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_json_that_cannot_is_refused_with_the_place_and_a_repair(text: str, place: dict[str, object]) -> None:
    with pytest.raises(JsonInvalid) as caught:
        decode(text)
    assert caught.value.details == place
    assert caught.value.fix
    str(caught.value).encode()


@pytest.mark.parametrize("depth", [1_000, 100_000, 130_000])
@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_no_depth_is_deep_enough_to_hurt(depth: int, opening: str) -> None:
    with pytest.raises(OutlastError):
        decode((opening * depth)[:FULL])


def test_size_counts_in_bytes_not_in_characters() -> None:
    decode('"' + "x" * (FULL - 2) + '"')
    with pytest.raises(PayloadTooLarge) as caught:
        decode('"' + "é" * (FULL // 2) + '"')
    assert caught.value.details == {"size": FULL + 2, "limit": FULL}
    with pytest.raises(PayloadTooLarge):
        decode('"' + "x" * FULL + '"')


def test_limits_can_be_wider() -> None:
    wide = JsonLimits(max_bytes=FULL * 2, max_depth=100, max_nodes=10**6, max_digits=5_000)
    assert decode("[" * 100 + "]" * 100, limits=wide)


@pytest.mark.parametrize(
    ("raw", "place"),
    [(b'"\xff"', {"offset": 1}), (b'"\xed\xa0\x80"', {"offset": 1}), (b"\xef\xbb\xbf{}", {"offset": 0})],
)
def test_bytes_are_utf_8_without_a_mark(raw: bytes, place: dict[str, object]) -> None:
    with pytest.raises(JsonInvalid) as caught:
        read_text(raw)
    assert caught.value.details == place


def test_bytes_over_the_limit_are_not_decoded_first() -> None:
    with pytest.raises(PayloadTooLarge):
        read_text(b"\xff" * (FULL + 1))
    assert read_text('{"é": 1}'.encode()) == '{"é": 1}'


@pytest.mark.parametrize(
    ("text", "slices"),
    [
        ("{}", {}),
        (' { "a" : { "b" : [ 1 , 2 ] } , "c":-0.0 } ', {"a": '{ "b" : [ 1 , 2 ] }', "c": "-0.0"}),
        ('{"payload":1.50E+300,"n":1000000000000000000001}', {"payload": "1.50E+300", "n": "1000000000000000000001"}),
        ('{"\\u0061":"\\u0041\\n}"}', {"a": '"\\u0041\\n}"'}),
        ('{"a":null,"b":[],"c":"}"}', {"a": "null", "b": "[]", "c": '"}"'}),
    ],
)
def test_members_are_given_back_byte_for_byte(text: str, slices: dict[str, str]) -> None:
    decode(text)
    assert members(text) == slices


def test_elements_are_given_back_byte_for_byte() -> None:
    assert elements(' [ {"a" : 1} ,"]", 1.0 , [ ] ] ') == ['{"a" : 1}', '"]"', "1.0", "[ ]"]
    assert elements("[]") == []


@pytest.mark.parametrize("text", ["[]", "1", "", '{"a":', '{"a"', '{"a":' + "[" * 100_000])
def test_members_of_anything_but_an_object_are_refused(text: str) -> None:
    with pytest.raises(JsonInvalid):
        members(text)


@pytest.mark.parametrize("text", ["{}", "1", "", "[1,", "[" * 100_000])
def test_elements_of_anything_but_an_array_are_refused(text: str) -> None:
    with pytest.raises(JsonInvalid):
        elements(text)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ('{"a":1,"b":[1,2]}', ' { "b" : [ 1, 2 ], "a" : 1 } ', True),
        ('"\\u00e9"', '"é"', True),
        ("1.5e300", "15e299", True),
        ("[1,2]", "[2,1]", False),
        ("1", "1.0", False),
        ("0.0", "-0.0", False),
        ("1", "true", False),
        ("1", '"1"', False),
        ("null", "{}", False),
        (str(2**60), str(2**60 + 1), False),
        ("9" * 4300, "9" * 4299 + "8", False),
        ('{"a":{"b":1}}', '{"a":{"B":1}}', False),
    ],
)
def test_fingerprints_are_equal_for_equal_payloads_only(left: str, right: str, *, same: bool) -> None:
    assert (fingerprint(decode(left)) == fingerprint(decode(right))) == same


def test_fingerprints_are_what_they_were_when_the_first_keys_were_stored() -> None:
    assert fingerprint({"order_id": 12, "shop": "é"}) == FIRST_FINGERPRINT
    assert -(2**63) <= FIRST_FINGERPRINT < 2**63


FIRST_FINGERPRINT = 4698150645294469204

HOSTILE = {
    "empty objects": "[" + ",".join(["{}"] * 87_000) + "]",
    "small objects": "[" + ",".join(['{"a":1}'] * 32_000) + "]",
    "a late repetition": "[" + ",".join(['{"a":1}'] * 32_000) + ',{"a":1,"a":1}]',
    "a late infinity": "[" + ",".join(["1.5"] * 65_000) + ",1e999]",
    "long integers": "[" + ",".join(["9" * 4300] * 60) + "]",
    "one long number": "9" * FULL,
    "a string without end": "[" * 70 + '"\\' * 130_000,
    "quotes": "[" * 70 + '"' * 262_000,
    "backslashes": '"' + "\\\\" * 130_000 + "\\ud800" + '"',
    "escapes": '"' + "\\\\a" * 87_000 + "\\ud83d\\ude00" + '"',
    "pairs": '"' + "\\ud83d\\ude00" * 21_800 + '"',
    "brackets": "[" * FULL,
    "blanks": " " * FULL,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_the_cost_of_a_text_is_bounded(text: str) -> None:
    """50 ms of processor time on an idle machine; ten times that here, because a quadratic pass takes minutes."""
    assert len(text) <= DEFAULT.max_bytes
    started = time.process_time()
    with contextlib.suppress(JsonInvalid):
        decode(text)
    assert time.process_time() - started < 0.5
