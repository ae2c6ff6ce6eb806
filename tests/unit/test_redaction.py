"""What is left out of what is shown, and that all else stays as it was stored."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import SettingsInvalid
from app.domain.redaction import REDACTED, checked_paths, is_telling, redacted

GONE = json.loads(REDACTED)


@pytest.mark.parametrize(
    ("text", "paths", "shown"),
    [
        ('{"a": 1}', ["b"], '{"a": 1}'),
        ('{"a": 1, "b": 1.50e3}', ["a"], '{"a": %, "b": 1.50e3}'),
        ('{"c": {"n": "4", "m": -0.0}, "x": [1,  2]}', ["c.n"], '{"c": {"n": %, "m": -0.0}, "x": [1,  2]}'),
        ('{"i": [{"s": 1}, {"s": 2, "t": 3}]}', ["i.*.s"], '{"i": [{"s": %}, {"s": %, "t": 3}]}'),
        ("[1, 2, 3]", ["1"], "[1, %, 3]"),
        ('{"a": {"b": {"k": {"z": 1}}}, "k": 2}', ["**.k"], '{"a": {"b": {"k": %}}, "k": %}'),
        ('{"a": [[{"k": 1}]]}', ["a.**.k"], '{"a": [[{"k": %}]]}'),
        ('{"é\\"": 1, "b": "\\ud83d\\ude00"}', ["*"], '{"é\\"": %, "b": %}'),
        ('"plain"', ["a"], '"plain"'),
        (' {"a":\n[ ] }', ["a"], ' {"a":\n% }'),
        ('{"1": 1, "a1": "1"}', ["a1"], '{"1": 1, "a1": %}'),
    ],
)
def test_what_a_path_names_is_left_out_and_nothing_else(text: str, paths: list[str], shown: str) -> None:
    assert redacted(text, paths) == shown.replace("%", REDACTED)


def test_nothing_stays_nothing() -> None:
    assert redacted(None, ["a"], by_name=True) is None
    assert redacted('{"a":  1}', []) == '{"a":  1}'


@pytest.mark.parametrize(
    "name", ["password", "apiKey", "API-KEY", "x_api_key", "Set-Cookie", "client_secret", "accessToken", "credentials"]
)
def test_names_that_tell_of_secrets_are_left_out_for_people(name: str) -> None:
    assert is_telling(name)
    text = json.dumps({"a": [{name: "swordfish"}], "b": 1})
    assert "swordfish" not in (redacted(text, [], by_name=True) or "")
    assert redacted(text, []) == text


@pytest.mark.parametrize("name", ["tokens_used", "secretary", "cookies_policy", "author", "key", "monkey"])
def test_names_that_only_look_like_it_are_shown(name: str) -> None:
    assert not is_telling(name)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc*"), inner, max_size=4),
    max_leaves=20,
)
PART = st.sampled_from(["a", "b", "c", "*", "**", "0", "1"])


def naive(value: object, paths: set[tuple[str, ...]]) -> object:
    here = set(paths)
    while deeper := {path[1:] for path in here if path[:1] == ("**",)} - here:
        here |= deeper
    if () in here:
        return GONE

    def below(name: str, inner: object) -> object:
        return naive(inner, {p if p[0] == "**" else p[1:] for p in here if p[0] in {name, "*", "**"}})

    if isinstance(value, dict):
        return {name: below(name, inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [below(str(index), inner) for index, inner in enumerate(value)]
    return value


@given(JSON, st.lists(st.lists(PART, min_size=1, max_size=4).filter(lambda parts: parts[-1] != "**"), max_size=3))
def test_it_is_what_a_walk_over_the_value_gives(value: object, paths: list[list[str]]) -> None:
    shown = redacted(json.dumps(value), [".".join(parts) for parts in paths])
    assert shown is not None
    assert json.loads(shown) == naive(value, {tuple(parts) for parts in paths})


@pytest.mark.parametrize("paths", ["a", ["a..b"], [""], ["a.**"], ["**"], [3], ["x" * 257], ["a"] * 101, 3])
def test_paths_that_name_no_place_are_refused_when_they_are_declared(paths: object) -> None:
    with pytest.raises(SettingsInvalid, match="redact="):
        checked_paths(paths)
