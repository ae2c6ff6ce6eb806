"""The parser of server-sent events: whatever the bytes are cut into, the events are the same."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from app.client.sse import EventParser, SentEvent
from app.http.event_stream import KEEP_ALIVE, RETRY, encode

STREAM = (
    '\ufeff: hello\r\n\r\nretry: 2000\n\nid: 7\nevent: state\ndata: {"a":\ndata:1}\n\n'
    "event: empty\n\ndata: plain ä\r\rid: 9\nid: no\0\nretry: x\nevent:step\ndata\n\nunknown: 1\n: c\ndata: half"
).encode()  # fmt: skip
EVENTS = [
    SentEvent(name="state", data='{"a":\n1}', last_id="7"),
    SentEvent(name="message", data="plain ä", last_id="7"),
    SentEvent(name="step", data="", last_id="9"),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_where_the_bytes_are_cut_makes_no_difference(cuts: list[int]) -> None:
    parser = EventParser()
    found: list[SentEvent] = []
    edges = [0, *sorted(cuts), len(STREAM)]
    for start, end in pairwise(edges):
        found += parser.feed(STREAM[start:end])
    assert found == EVENTS
    assert (parser.last_id, parser.retry_ms) == ("9", 2000)


def test_what_the_service_writes_is_read() -> None:
    parser = EventParser()
    sent = RETRY + KEEP_ALIVE + encode("step", {"value": "a\nb\u2028c", "n": 1}, number=12) + encode("end", {})
    first, last = parser.feed(sent)
    assert (first.name, first.last_id) == ("step", "12")
    assert '"a\\nb' in first.data
    assert (last.name, last.last_id) == ("end", "12")


def test_a_parser_that_goes_on_keeps_the_id_it_had() -> None:
    parser = EventParser("41")
    (event,) = parser.feed(b"data: x\n\n")
    assert event.last_id == "41"
