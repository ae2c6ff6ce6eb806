from __future__ import annotations

import pytest

from app.http.prefer import Preferences, read_preferences


@pytest.mark.parametrize(
    ("headers", "wait", "minimal"),
    [
        ([], None, False),
        (["wait=5"], 5, False),
        (["WAIT = 5"], 5, False),
        (['wait="5"'], 5, False),
        (["wait=0"], 0, False),
        (["wait=61"], 60, False),
        (["wait=999999999"], 60, False),
        (["return=minimal"], None, True),
        (["respond-async, wait=10; foo=bar, return=minimal"], 10, True),
        (["return=minimal", "wait=3"], 3, True),
        (["wait=3, wait=9"], 3, False),
        (["return=representation"], None, False),
        (["wait=-1"], None, False),
        (["wait=1.5"], None, False),
        (["wait=x"], None, False),
        (["wait"], None, False),
        (["wait=9999999999"], None, False),
        (["", ",,,;;;==="], None, False),
    ],
)
def test_preferences_are_read_and_what_is_none_is_ignored(headers: list[str], wait: int | None, minimal: bool) -> None:
    assert read_preferences(headers) == Preferences(wait_seconds=wait, is_minimal=minimal)


def test_what_was_applied_is_said() -> None:
    assert Preferences().applied() == {}
    assert Preferences(wait_seconds=0).applied() == {"Preference-Applied": "wait=0"}
    both = Preferences(wait_seconds=5, is_minimal=True)
    assert both.applied() == {"Preference-Applied": "wait=5"}
