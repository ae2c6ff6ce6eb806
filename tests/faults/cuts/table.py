"""The matrix as people read it: what its cells were, and how many of them came to which end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tests.faults.cuts.cell import Cell
from tests.support.blade import Cut


def lines(cells: Sequence[Cell]) -> Iterator[str]:
    """Give a line a cell, under its operation."""
    named = ""
    for cell in cells:
        if cell.operation != named:
            named = cell.operation
            yield f"  {named}: {cell.of} {'statement' if cell.of == 1 else 'statements'}"
        did = "stored" if cell.stored else "nothing stored"
        yield f"    {cell.at + 1:2}. {cell.sql:60}  {cell.cut:24}  {cell.proof:34}  {did:14}  {cell.heard}"


def counts(title: str, cells: Sequence[Cell]) -> str:
    """Give one line: how many cells, of how many operations and statements, by cut and by end."""
    operations = len({cell.operation for cell in cells})
    statements = len({(cell.operation, cell.at) for cell in cells})
    cuts = Counter(cell.cut for cell in cells)
    stored = sum(cell.stored for cell in cells)
    by_cut = ", ".join(f"{cuts[cut]} {cut}" for cut in Cut if cuts[cut])
    return (
        f"{title}: {len(cells)} cells held, {operations} operations, {statements} statements ({by_cut});"
        f" before the repetition {stored} had stored something"
    )


def agree(cells: Sequence[Cell]) -> None:
    """Hold the cells of an operation to each other: what is stored follows from what was executed, and grows."""
    stored = {(cell.at, cell.cut): cell.stored for cell in cells if cell.heard != "its answer"}
    last = 0
    for at in sorted({at for at, _ in stored}):
        before = {stored[at, cut] for cut in (Cut.UNSENT, Cut.UNDONE) if (at, cut) in stored}
        after = {stored[at, cut] for cut in (Cut.UNANSWERED, Cut.HALF) if (at, cut) in stored}
        assert len(before) == len(after) == 1, f"{cells[0].operation}, statement {at + 1}: {stored}"
        assert sum(before) == last, f"{cells[0].operation}, before statement {at + 1}: {stored}"
        assert sum(after) >= last, f"{cells[0].operation}, after statement {at + 1}: {stored}"
        last = sum(after)
    assert last, f"{cells[0].operation} stored nothing when it was cut after its last statement"


def commits(statements: Sequence[str]) -> Iterator[int]:
    """Give the statements after which something is committed."""
    is_within = False
    for at, sql in enumerate(statements):
        word = sql.split(maxsplit=1)[0].strip(";").upper()
        is_within = word == "BEGIN" or (is_within and word not in {"COMMIT", "ROLLBACK"})
        if not is_within and word not in {"SELECT", "ROLLBACK"}:
            yield at
