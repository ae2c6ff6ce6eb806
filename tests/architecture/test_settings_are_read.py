"""Every setting does something: one that nobody reads is a promise to whoever sets it."""

from __future__ import annotations

import ast

from app.settings import Settings
from tests.support.source import python_files, relative, tree_of


def test_every_field_is_read_somewhere() -> None:
    read = {
        node.attr
        for path in python_files("app")
        if relative(path) != "app/settings.py"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    assert sorted(set(Settings.model_fields) - read) == []
