"""Finds blocks that would take another way on replay: those left by `return`, `break` or `continue`.

A recorded transaction's block is left out, and the statement with it: the body would go on behind the block. Read off
the source of the function that enters it, where there is one. Used by transactions.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from types import CodeType, FrameType

_OWN_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_MOST_KEPT = 1000  # places of transactions in the code


def way_out(frame: FrameType) -> str | None:
    """Give how the `async with` that a frame enters is left before its end, as `return in line 7`; None: not known."""
    return _way_out(frame.f_code, frame.f_lasti)


@lru_cache(maxsize=_MOST_KEPT)
def _way_out(code: CodeType, at: int) -> str | None:
    line, _, column, _ = next(islice(code.co_positions(), at // 2, None), (None,) * 4)
    try:
        module = ast.parse("".join(linecache.getlines(code.co_filename)))
    except (SyntaxError, ValueError, RecursionError):
        return None
    for node in ast.walk(module):
        if isinstance(node, ast.AsyncWith) and (line, column) in _places(node):
            left = next(_exits(node.body, is_in_loop=False), None)
            return None if left is None else f"{type(left).__name__.lower()} in line {left.lineno}"
    return None


def _places(block: ast.AsyncWith) -> set[tuple[int, int]]:
    """Give the places that the compiler may give to entering a block."""
    nodes: list[ast.stmt | ast.expr] = [block, *(item.context_expr for item in block.items)]
    return {(node.lineno, node.col_offset) for node in nodes}


def _exits(nodes: list[ast.stmt], *, is_in_loop: bool) -> Iterator[ast.stmt]:
    for node in nodes:
        if isinstance(node, ast.Return) or (isinstance(node, ast.Break | ast.Continue) and not is_in_loop):
            yield node
        elif not isinstance(node, _OWN_SCOPES):
            # The `else` of a loop is not in it.
            inside = is_in_loop or isinstance(node, _LOOPS)
            for name, inner in ast.iter_fields(node):
                if isinstance(inner, list):
                    statements = [part for one in inner for part in _statements(one)]
                    yield from _exits(statements, is_in_loop=is_in_loop if name == "orelse" else inside)


def _statements(node: object) -> list[ast.stmt]:
    """Give the statements of a part of a statement: itself, or those of an except clause or a case."""
    if isinstance(node, ast.stmt):
        return [node]
    return list(node.body) if isinstance(node, ast.ExceptHandler | ast.match_case) else []
