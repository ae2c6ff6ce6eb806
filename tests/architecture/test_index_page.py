"""Every index of the schema is on the page of indexes, with what it is for and what it costs."""

from __future__ import annotations

import json

from docs.indexes import EVERY, FIGURES, PURPOSES, indexes


def test_every_index_has_a_purpose() -> None:
    assert set(PURPOSES) == set(indexes()), "say in docs/indexes.py what the index is for, or take it out there"


def test_what_jobs_write_is_measured() -> None:
    """A new one is measured by `python -m benchmarks.index_wal`."""
    figures = json.loads(FIGURES.read_text())
    assert set(figures) <= set(PURPOSES)
    written = {name for name, purpose in PURPOSES.items() if "job" in purpose.written and "type" not in purpose.written}
    assert written <= set(figures)


def test_an_ordinary_job_is_in_four_indexes() -> None:
    every = {name for name, purpose in PURPOSES.items() if purpose.written.startswith(EVERY)}
    assert every == {"job_pkey", "ready_pkey", "running_pkey", "finished_pkey"}
