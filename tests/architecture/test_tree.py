"""The shape of the tree: sizes, names, and the one file that must not exist."""

from __future__ import annotations

import ast
import os
import subprocess

import pytest

from tests.support.source import CHECKOUT, python_files, relative, tree_of

pytestmark = pytest.mark.timeout(100)  # each reads the whole tree

MAX_FILE_LINES = 350
MAX_FUNCTION_LINES = 60
# Such names take in anything; a file is named after one noun or one verb.
FORBIDDEN_NAMES = {"utils", "util", "common", "base", "helpers", "helper", "core", "manager", "models", "types", "misc"}


def test_the_folder_of_migrations_does_not_shadow_the_library() -> None:
    assert not (CHECKOUT / "alembic" / "__init__.py").exists()
    assert not (CHECKOUT / "alembic" / "versions" / "__init__.py").exists()


def test_files_stay_readable_in_one_sitting() -> None:
    lines = {relative(path): len(path.read_text().splitlines()) for path in python_files()}
    assert {path: count for path, count in lines.items() if count > MAX_FILE_LINES} == {}


def test_functions_stay_readable_on_one_screen() -> None:
    too_long = {
        f"{relative(path)}:{node.lineno} {node.name}": length
        for path in python_files()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
    }
    assert too_long == {}


def test_no_module_has_a_name_that_takes_in_anything() -> None:
    parts = {
        relative(path): set(path.relative_to(CHECKOUT).with_suffix("").parts) & FORBIDDEN_NAMES
        for path in python_files("app")
    }
    assert {path: names for path, names in parts.items() if names} == {}


def test_every_package_of_the_application_says_what_it_is() -> None:
    silent = [relative(path) for path in python_files("app") if ast.get_docstring(tree_of(path)) is None]
    assert silent == []


def test_the_ci_script_can_be_run() -> None:
    script = CHECKOUT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().startswith("#!/usr/bin/env bash\n")
    subprocess.run(["bash", "-n", script], check=True)


def test_make_help_lists_what_newcomers_need() -> None:
    shown = subprocess.run(["make", "-s", "help"], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    wanted = {"dev", "test", "check", "fix", "long", "soak", "mutants", "bench", "openapi", "help"}
    assert wanted <= {line.split()[1] for line in shown.splitlines() if line.startswith("  make ")}


def test_every_folder_of_tests_is_a_package() -> None:
    # Otherwise two test files of one name are one module to pytest and to mypy.
    folders = {path.parent for path in python_files("tests")}
    assert [relative(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []
