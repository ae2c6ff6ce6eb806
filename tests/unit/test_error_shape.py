"""What the messages of one fault have in common is kept; what differs from job to job becomes a hole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.error_shape import shape_of


@pytest.mark.parametrize(
    ("message", "shape"),
    [
        ("no such mailbox", "no such mailbox"),
        ("", ""),
        ("timed out after 30.5 s (10.0.0.1:5432)", "timed out after ‹n› s (‹n›)"),
        ("2,345 rows, of 17", "‹n› rows, of ‹n›"),
        ("utf8 and sha256 in ORA-00942", "utf8 and sha256 in ORA-‹n›"),
        ("410 Gone for url https://a.example/x?y=1", "410 Gone for url ‹url›"),
        ("550 5.1.1 no such user ann.b@shop.example", "550 ‹n› no such user ‹email›"),
        ("500 rows", "‹n› rows"),
        ("order \"90417\" of 'eu' in `db` is “gone”", "order ‹text› of ‹text› in ‹text› is ‹text›"),
        ("can't reach 'db-1', don't retry", "can't reach ‹text›, don't retry"),
        ("job 01a20d81-f94c-7a9d-86a1-e0ccf05db76e, f05db76e at 0x7ffab3", "job ‹id›, ‹id› at ‹id›"),
        ("key cus_9A8B7C6D5E4F3a2b, facade stays", "key ‹id›, facade stays"),
        ("late since 2026-11-30T17:22:01.123Z and 2026-11-30", "late since ‹time› and ‹time›"),
        ("one\n  line\tof 3", "one line of ‹n›"),
        ('said "' + "a" * 400, "said ‹text›"),
        ("b" * 400, "b" * 300 + "…"),
    ],
)
def test_what_differs_becomes_a_hole(message: str, shape: str) -> None:
    assert shape_of(message) == shape


@given(st.integers(min_value=0), st.integers(min_value=0), st.uuids(), st.uuids())
def test_messages_of_one_fault_read_alike(one: int, other: int, job: object, twin: object) -> None:
    first, second = (f"order {order} of run {run} has '{order}' items" for order, run in ((one, job), (other, twin)))
    assert shape_of(first) == shape_of(second) == "order ‹n› of run ‹id› has ‹text› items"


@given(st.text(alphabet="a1'\"`“”.:-_@/ ‹\n", max_size=400))
def test_every_message_has_a_shape_of_its_length(message: str) -> None:
    shape = shape_of(message)
    assert len(shape) <= 7 * 300
    assert "\n" not in shape
