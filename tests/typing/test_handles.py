"""Runs the type checker over `handles.py` and `steps.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.timeout(180)  # the checker starts without a cache, so that nothing of an earlier run can answer
def test_a_type_checker_infers_payloads_and_results_and_refuses_mistakes(tmp_path: Path) -> None:
    files = [str(HERE / name) for name in ("handles.py", "steps.py")]
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path), *files]
    done = subprocess.run(command, cwd=HERE.parent.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
