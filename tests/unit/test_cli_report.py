"""What commands say to the person at the terminal, and that nobody need be there."""

from __future__ import annotations

import io
import sys

import pytest

from app.cli.report import fail, say


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device", text[:1])


def test_a_terminal_that_takes_no_more_ends_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Full())
    say("ready")
    fail("it broke", fix="mend it")


def test_a_failure_is_two_lines_whatever_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    fail("it\nbroke", fix="mend\n it")
    assert capsys.readouterr().err == "error: it broke\n  fix: mend it\n"
