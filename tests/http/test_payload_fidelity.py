"""Odd payloads come back byte for byte: nothing on their way decodes and encodes them again."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator

import pytest

from app.domain.job import JobId
from app.domain.json_text import members
from app.domain.outcome import Completed
from tests.http.api import Api
from tests.support.drivers import NAME

COUNT = 1_000
BATCHES = 5
SEED = 20_261_129
_PLANES = (0x20, 0x80, 0x800, 0x2FFF, 0xE000, 0xFFFD, *(plane << 16 for plane in range(1, 17)))
_SPACES = ("", " ", "\n", "\t", "\r\n  ")
_NUMBERS = (
    "0", "-0", "-0.0", "0.0", "1", "1.0", "1e0", "1E+2", "1e-7", "1.5e300", "-1.5E300", "5e-324", "1e-400",
    "1.7976931348623157e308", "0.1", "0.30000000000000004", "1152921504606846977", "-9223372036854775809",
    "18446744073709551616", "1" + "0" * 400, "-" + "9" * 4_299, "123456789012345678901234567890.5",
)  # fmt: skip
_STRINGS = (
    '""', '"\\/"', '"/"', '"\\u0041"', '"A"', '"\\ud83e\\udd8a"', '"🦊"', '"\\b\\f\\n\\r\\t\\"\\\\"', '"\u2028\u2029"',
    '"</script><!--"', '"\\u001f"', '"\\u007f\x7f"', '"\u202egnp"', '"\ufeff"', '"\ufffe\uffff"', '"e\u0301\u00e9"',
)  # fmt: skip
_KEYS = (
    '{"a":1,"A":2}', '{"ß":1,"SS":2,"ss":3}', '{"":0," ":1}', '{"i":1,"I":2,"\u0130":3,"\u0131":4}',
    '{"e\u0301":1,"é":2}',     '{"1":1,"1.0":2,"01":3}', '{"__proto__":1,"constructor":2}', '{"a\\u0001b":0}',
)  # fmt: skip
_WHOLE = (
    str(2**60 + 1), "1.5e300", "-0.0", "1" + "0" * 400, "null", "true", "false", '""', "[]", "{}",
    "[ ]", "{ }", "[" * 64 + "]" * 64, '{"k":' * 64 + "0" + "}" * 64, '"' + "x" * 200_000 + '"',
    '"' + "🦊" * 50_000 + '"', '"' + "\\u0041" * 30_000 + '"', "[" + "1.50e3," * 25_000 + "-0]",
    *_NUMBERS, *_STRINGS, *_KEYS,
)  # fmt: skip


def payloads(count: int) -> Iterator[str]:
    """Give so many JSON texts, the hand-made ones first."""
    yield from _WHOLE[:count]
    dice = random.Random(SEED)
    for _ in range(count - len(_WHOLE)):
        yield text(dice, depth=dice.randrange(6))


def text(dice: random.Random, depth: int) -> str:
    """Give one random JSON text, spacing and spelling included."""
    space = dice.choice(_SPACES)
    if depth == 0:
        return dice.choice((number, string, lambda _dice: dice.choice(_NUMBERS + _STRINGS)))(dice)
    inner = [text(dice, dice.randrange(depth)) for _ in range(dice.randrange(6))]
    if dice.random() < 0.5:
        return f"[{space}{f'{space},{dice.choice(_SPACES)}'.join(inner)}{space}]"
    named = [f"{key(dice, place)}{space}:{dice.choice(_SPACES)}{value}" for place, value in enumerate(inner)]
    return f"{{{space}{f'{space},'.join(named)}{dice.choice(_SPACES)}}}"


def number(dice: random.Random) -> str:
    whole = str(dice.randrange(10 ** dice.randrange(1, 60)))
    fraction = f".{dice.randrange(10**9)}0" if dice.random() < 0.5 else ""
    exponent = (
        f"{dice.choice('eE')}{dice.choice(('', '+', '-'))}{dice.randrange(200):03}" if dice.random() < 0.3 else ""
    )
    return f"{dice.choice(('', '-'))}{whole}{fraction}{exponent}"


def string(dice: random.Random) -> str:
    letters = [chr(dice.choice(_PLANES) + dice.randrange(0x10)) for _ in range(dice.randrange(20))]
    return json.dumps("".join(letters), ensure_ascii=dice.random() < 0.5)


def key(dice: random.Random, place: int) -> str:
    return json.dumps(f"{dice.choice('aAbBéÉ')}{place}{chr(dice.choice(_PLANES))}", ensure_ascii=dice.random() < 0.5)


def test_there_are_a_thousand_payloads() -> None:
    assert len(list(payloads(COUNT))) == COUNT


@pytest.mark.parametrize("batch", range(BATCHES))
async def test_payloads_come_back_byte_for_byte(each_api: Api, batch: int) -> None:
    sent = list(payloads(COUNT))[batch::BATCHES]
    gate = asyncio.Semaphore(8)

    async def travel(payload: str) -> None:
        meta = '{"big": 1152921504606846977, "f" : -0.0}'
        body = f'{{"payload" : {payload}\n, "name": "{NAME}", "meta": {meta}}}'.encode()
        async with gate:
            posted = await each_api.client.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
            assert posted.status_code == 201, (payload[:200], posted.text[:500])
            assert members(posted.text)["payload"] == payload
            found = await each_api.client.get(posted.headers["location"])
        assert members(found.text)["payload"] == payload
        assert members(found.text)["meta"] == meta

    async with asyncio.TaskGroup() as group:
        for payload in sent:
            group.create_task(travel(payload))


async def test_a_worker_gets_the_same_bytes_and_so_does_who_reads_its_result(each_api: Api) -> None:
    api = each_api
    worker = await api.env.register()
    for payload in [*_NUMBERS, *_STRINGS, *_KEYS]:
        body = f'{{"name": "{NAME}", "payload": {payload}}}'.encode()
        posted = await api.client.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
        claimed = await api.env.claim_one(worker)
        assert claimed.payload == payload
        await api.env.close_attempt(claimed.token, Completed(result=payload))
        for path in (posted.headers["location"], posted.headers["location"] + "/result"):
            assert members((await api.client.get(path)).text)["result"] == payload
        view = await api.env.describe(JobId(claimed.token.job_id))
        assert view.result == payload
