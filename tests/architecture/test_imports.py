"""Importing a module does nothing: no settings, no network, no processes, no threads, no output."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.source import CHECKOUT, module_name, python_files

pytestmark = pytest.mark.timeout(100)  # each reads the whole tree

SCRIPT = """
import importlib, os, sys, threading

def refuse(event, args):
    if event.split(".")[0] in {"socket", "subprocess"} and event not in ALLOWED or event == "os.system":
        raise RuntimeError(f"{event} on import: {args!r}")

# What the standard library does to know its own platform.
ALLOWED = {"socket.__new__", "socket.gethostname"}
sys.path.insert(0, os.getcwd())
sys.addaudithook(refuse)
failed = []
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except BaseException as exc:
        failed.append(f"{name}: {exc!r}")
if threading.active_count() > 1:
    failed.append(f"threads were started: {threading.enumerate()}")
sys.exit("\\n".join(failed) or 0)
"""


def test_every_module_imports_with_nothing_around_it() -> None:
    names = [module_name(path) for path in python_files("app")]
    done = subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c", SCRIPT, *names],
        cwd=CHECKOUT,
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


def test_a_process_without_the_api_loads_no_web_framework() -> None:
    """It takes as long as all the rest, and a worker or a command has no use for it."""
    script = "import sys; import app.process, app.cli.store; print(*{'fastapi', 'uvicorn'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=CHECKOUT, env={}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
