from __future__ import annotations

import pytest

from tests.support.log_lint import unfit_lines


@pytest.mark.parametrize(
    ("line", "is_fit"),
    [
        ('{"event": "attempt.dead", "error": "Traceback (most recent call last):\\n x"}', True),
        ("outlast api is running: API on http://127.0.0.1:1, admin on http://127.0.0.1:2", True),
        ("\ttabbed", True),
        ("Traceback (most recent call last):", False),
        ("Task exception was never retrieved", False),
        ('{"event": "Future exception was never retrieved", "logger": "asyncio"}', False),
        ("RuntimeWarning: coroutine 'x' was never awaited", False),
        ("Task was destroyed but it is pending!", False),
        ("red \x1b[31mtext", False),
        ("one\rtwo", False),
    ],
)
def test_a_line_that_none_may_say_is_found(line: str, *, is_fit: bool) -> None:
    assert (unfit_lines(f"first\n{line}\nlast") == []) is is_fit
