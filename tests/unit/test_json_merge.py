from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.json_merge import merged
from app.domain.json_text import decode

# The examples of RFC 7396, appendix A.
RFC = [
    ('{"a":"b"}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"b"}', '{"b":"c"}', '{"a":"b","b":"c"}'),
    ('{"a":"b"}', '{"a":null}', "{}"),
    ('{"a":"b","b":"c"}', '{"a":null}', '{"b":"c"}'),
    ('{"a":["b"]}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"c"}', '{"a":["b"]}', '{"a":["b"]}'),
    ('{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', '{"a":{"b":"d"}}'),
    ('{"a":[{"b":"c"}]}', '{"a":[1]}', '{"a":[1]}'),
    ('["a","b"]', '["c","d"]', '["c","d"]'),
    ('{"a":"b"}', '["c"]', '["c"]'),
    ('{"a":"foo"}', "null", "null"),
    ('{"a":"foo"}', '"bar"', '"bar"'),
    ('{"e":null}', '{"a":1}', '{"e":null,"a":1}'),
    ("[1,2]", '{"a":"b","c":null}', '{"a":"b"}'),
    ("{}", '{"a":{"bb":{"ccc":null}}}', '{"a":{"bb":{}}}'),
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def reference(target: object, patch: object) -> object:
    """Do as the RFC says, on values."""
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = reference(found.get(name), value)
    return found


@pytest.mark.parametrize(("text", "patch", "expected"), RFC)
def test_the_examples_of_the_rfc(text: str, patch: str, expected: str) -> None:
    assert merged(text, patch) == expected


@given(VALUES, VALUES, st.sampled_from([None, 2]))
def test_it_is_what_the_rfc_does_on_values(target: object, patch: object, indent: int | None) -> None:
    texts = (json.dumps(value, indent=indent) for value in (target, patch))
    assert json.loads(merged(*texts)) == reference(target, patch)


def test_what_is_not_changed_keeps_its_bytes() -> None:
    text = '{ "n" : 1.50, "big":123456789012345678901234567890, "x": {"e": 1E5, "é": "\\u00e9"}, "gone": 0 }'
    patched = merged(text, '{"x": {"new": -0.0}, "gone": null}')
    assert patched == ('{"n":1.50,"big":123456789012345678901234567890,"x":{"e":1E5,"é":"\\u00e9","new":-0.0}}')
    assert decode(patched)


def test_names_are_written_as_json() -> None:
    assert json.loads(merged('{"a\\"b": 1}', '{"c\\nd": 2}')) == {'a"b': 1, "c\nd": 2}
