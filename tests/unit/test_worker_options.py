"""A worker's set-up: what cannot work is refused, and the places add up."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import SettingsInvalid
from app.worker.backoff import Backoff
from app.worker.options import QueueLimit, WorkerOptions, parse_queues
from app.worker.places import Places

ZERO = timedelta()


@pytest.mark.parametrize(
    "fields",
    [
        {"queues": ()},
        {"queues": (QueueLimit(queue="a"), QueueLimit(queue="a", limit=2))},
        {"concurrency": 0},
        {"concurrency": 10_001},
        {"lease": ZERO},
        {"heartbeat": timedelta(seconds=10.1)},
        {"heartbeat": ZERO},
        {"sweep": ZERO},
        {"poll": ZERO},
        {"loop_stall": ZERO},
        {"start": timedelta(seconds=-1)},
        {"cancel_grace": timedelta(seconds=-1)},
        {"alone_after": timedelta(seconds=-1)},
        {"stats_every": ZERO},
        {"result_max_bytes": 0},
    ],
)
def test_values_that_cannot_work_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        WorkerOptions(**fields)
    assert next(iter(fields)) in caught.value.cause


def test_a_heartbeat_of_a_third_of_the_lease_is_just_allowed() -> None:
    assert WorkerOptions(lease=timedelta(seconds=30), heartbeat=timedelta(seconds=10)).heartbeat.seconds == 10


def test_the_poll_is_a_floor_that_depends_on_wake_ups_unless_it_is_set() -> None:
    assert WorkerOptions().poll_seconds(is_listening=True) == 10
    assert WorkerOptions().poll_seconds(is_listening=False) == 1
    assert WorkerOptions(poll=timedelta(seconds=3)).poll_seconds(is_listening=True) == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", (("a", None),)),
        ("a:10,b:5", (("a", 10), ("b", 5))),
        (" a:10 , b , ", (("a", 10), ("b", None))),
        ("eu:mail:3", (("eu:mail", 3),)),
        ("eu:mail", (("eu:mail", None),)),
    ],
)
def test_queues_are_read_with_their_places(text: str, expected: tuple[tuple[str, int | None], ...]) -> None:
    assert tuple((share.queue, share.limit) for share in parse_queues(text)) == expected


@pytest.mark.parametrize("text", ["", " , ", "a:", "a:0", "a:-1", "A", "a,a", "a b", ":5", "a:10001", "ä"])
def test_queues_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        parse_queues(text)
    assert caught.value.fix


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=12))
def test_places_never_offer_more_than_there_are(taken: list[str]) -> None:
    freed: list[int] = []
    options = WorkerOptions(concurrency=5, queues=(QueueLimit(queue="a", limit=2), QueueLimit(queue="b")))
    places = Places(options, on_freed=lambda: freed.append(1))
    for queue in taken:
        places.take(queue)
    assert places.taken == len(taken)
    assert places.room() == max(5 - len(taken), 0)
    assert places.is_empty.is_set() == (not taken)
    for share in places.shares():
        assert 0 < share.room <= places.room()
        assert share.queue != "a" or share.room <= 2 - taken.count("a")
    for queue in taken:
        places.give(queue)
    assert places.is_empty.is_set()
    assert len(freed) == len(taken)


@given(st.integers(min_value=1, max_value=40), st.floats(min_value=0, max_value=1, exclude_max=True))
def test_backoff_grows_to_two_seconds_and_starts_over(failures: int, roll: float) -> None:
    backoff = Backoff(lambda: roll)
    waits = [backoff.failed() for _ in range(failures)]
    assert all(0 < wait <= 2.0 for wait in waits)
    assert waits == sorted(waits)
    backoff.succeeded()
    assert backoff.failed() == waits[0]
