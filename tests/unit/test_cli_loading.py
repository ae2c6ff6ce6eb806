"""The collector of garbage rests while modules are loaded, and leaves them alone from then on."""

from __future__ import annotations

import gc

import pytest

from app.cli.loading import loading


def test_what_is_loaded_is_not_looked_through() -> None:
    before = gc.get_freeze_count()
    with loading():
        assert not gc.isenabled()
        made = [[number] for number in range(1_000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + len(made)


def test_a_module_that_cannot_be_loaded_leaves_the_collector_at_work() -> None:
    with pytest.raises(ImportError), loading():
        raise ImportError
    assert gc.isenabled()
