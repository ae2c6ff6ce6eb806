"""Encryption as it is set up: keys and codecs, what goes through it, and workers and callers without the key."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from app.domain.errors import PayloadUnreadable, SettingsInvalid
from app.domain.job import NewJob
from app.domain.sealed import Seals, why_unreadable
from app.domain.state import State
from app.drivers.memory.driver import MemoryDriver
from app.drivers.outbox import OutboxStore
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.protocol import JobDriver
from app.drivers.reading import ListQuery
from app.drivers.schedules import ScheduleStore
from app.drivers.sealing.aes import OVERHEAD, AesGcmCodec
from app.drivers.sealing.driver import SealingDriver, sealing
from app.drivers.sealing.stores import SealingOutbox, SealingSchedules, SealingWebhooks
from app.drivers.webhooks import WebhookStore
from app.jobs.context import JobContext
from app.jobs.handle import job
from app.settings import Settings
from app.stores import build_driver
from tests.http.api import Api, job_type
from tests.roles.harness import working
from tests.support.drivers import NAME, memory_env, new_job

OLD, NEW = bytes(range(32)), b"n" * 32
CONTEXT = b"here"

# Verbs that carry nothing of what users wrote in payloads, results, values, events, lines or errors.
PLAIN: dict[object, str] = {
    JobDriver: """add_flow ask_drain audit cancel capabilities close close_worker count_jobs count_over count_table
        count_waiting database_time delete drains due expire finished_among flow flow_kinds
        free_slots heard isolate job_types keep_entry limits_of line_up listen open open_heartbeat patch
        pause_queue ping promote publish_job_types purge purge_ended queue_facts queues reap reconcile
        register_worker release release_due release_held release_request release_slots resume_queue retry
        return_slots run_now set_limit set_queue show_worker slots stats stored_limits surrender sweep_slots
        sweep_waits tidy tidy_table until_finished vitals wake workers""",
    OutboxStore: "claim close defer end forwarded open publish quarantine recover release replay view",
    ScheduleStore: "declare find now pause resume schedules standings trim",
    WebhookStore: "change create delete deliveries delivery note resend rotate webhook webhooks",
}


@pytest.mark.parametrize(
    ("protocol", "made"),
    [
        (JobDriver, SealingDriver),
        (OutboxStore, SealingOutbox),
        (ScheduleStore, SealingSchedules),
        (WebhookStore, SealingWebhooks),
    ],
)
def test_a_verb_is_sealed_or_known_to_carry_nothing(protocol: type, made: type) -> None:
    verbs = {name for name in dir(protocol) if not name.startswith("_")}
    assert verbs - set(vars(made)) == set(PLAIN[protocol].split())


def test_without_a_codec_the_driver_is_the_stores_own() -> None:
    assert type(build_driver(Settings.read(database_url="memory://"))) is MemoryDriver
    assert type(build_driver(Settings.read(database_url="postgresql://nobody@nowhere/none"))) is PostgresDriver


def key_file(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "keys"
    path.write_text("\n".join(lines) + "\n")
    return path


async def test_the_keys_of_a_file_seal(tmp_path: Path) -> None:
    path = key_file(tmp_path, NEW.hex(), OLD.hex())
    driver = build_driver(Settings.read(database_url="memory://", payload_key_file=path))
    assert isinstance(driver, SealingDriver)
    assert NEW.hex() not in repr(vars(driver))
    assert AesGcmCodec([NEW]).decode(driver._words.seals._codec.encode(b"1", CONTEXT), CONTEXT) == b"1"


@pytest.mark.parametrize("lines", [[], ["short"], ["ab" * 31], ["zz" * 32]])
def test_a_file_without_keys_stops_the_start_and_shows_none(tmp_path: Path, lines: list[str]) -> None:
    with pytest.raises(SettingsInvalid, match="OUTLAST_PAYLOAD_KEY_FILE") as refused:
        build_driver(Settings.read(database_url="memory://", payload_key_file=key_file(tmp_path, *lines)))
    assert "openssl rand -hex 32" in refused.value.fix
    assert all(line not in str(refused.value) for line in lines)


def test_a_file_that_is_absent_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match="cannot be read: FileNotFoundError"):
        build_driver(Settings.read(database_url="memory://", payload_key_file=tmp_path / "none"))


class Reversed:
    """A codec of somebody's own."""

    def encode(self, plain: bytes, context: bytes) -> bytes:
        return plain[::-1]

    def decode(self, stored: bytes, context: bytes) -> bytes:
        return stored[::-1]


class Forgetful(Reversed):
    def decode(self, stored: bytes, context: bytes) -> bytes:
        return b""


class Broken(Reversed):
    def encode(self, plain: bytes, context: bytes) -> bytes:
        raise RuntimeError("no key")


@pytest.fixture
def codecs(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("shop_codecs")
    vars(module).update(Reversed=Reversed, made=Reversed(), Forgetful=Forgetful, Broken=Broken)
    monkeypatch.setitem(__import__("sys").modules, "shop_codecs", module)


@pytest.mark.parametrize("place", ["shop_codecs:Reversed", "shop_codecs:made"])
@pytest.mark.usefixtures("codecs")
async def test_a_codec_of_ones_own_is_taken(place: str) -> None:
    driver = build_driver(Settings.read(database_url="memory://", payload_codec=place))
    assert isinstance(driver, SealingDriver)
    answer = await driver.enqueue(new_job(payload="[1]"))
    view = await driver.describe(answer.id)
    assert view is not None
    assert view.payload == "[1]"


@pytest.mark.parametrize("place", ["shop_codecs", "shop_codecs:Absent", "nowhere:made", "shop_codecs:Forgetful"])
@pytest.mark.usefixtures("codecs")
def test_a_codec_that_cannot_work_stops_the_start(place: str) -> None:
    with pytest.raises(SettingsInvalid, match=place):
        build_driver(Settings.read(database_url="memory://", payload_codec=place))


class Moody(Reversed):
    def decode(self, stored: bytes, context: bytes) -> bytes:
        raise KeyError("vault")


async def test_a_codec_that_fails_on_a_value_leaves_the_others_alone() -> None:
    store = MemoryDriver()
    await sealing(store, Moody()).enqueue(new_job(payload="[1]"))
    await store.enqueue(new_job(payload="[2]"))
    page = (await sealing(store, Moody()).list(ListQuery())).items
    views = [await sealing(store, Moody()).describe(one.id) for one in page]
    whys = [why_unreadable(None if view is None else view.payload) for view in views]
    assert [None if why is None else why.cause for why in whys] == [
        None,
        "it is encrypted, and the codec failed: KeyError: 'vault'",
    ]


@pytest.mark.usefixtures("codecs")
def test_a_codec_that_fails_is_named_with_its_error() -> None:
    with pytest.raises(SettingsInvalid, match="RuntimeError: no key"):
        build_driver(Settings.read(database_url="memory://", payload_codec="shop_codecs:Broken"))


def test_keys_and_a_codec_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match="both"):
        build_driver(
            Settings.read(
                database_url="memory://", payload_key_file=key_file(tmp_path, NEW.hex()), payload_codec="shop:codec"
            )
        )


@pytest.mark.parametrize("plain", [b"", b"1", b"x" * 262_144])
def test_a_value_comes_back_and_grows_by_as_much(plain: bytes) -> None:
    codec = AesGcmCodec([NEW, OLD])
    stored = codec.encode(plain, CONTEXT)
    assert len(stored) == len(plain) + OVERHEAD
    assert codec.decode(stored, CONTEXT) == plain
    assert codec.encode(plain, CONTEXT) != stored
    assert AesGcmCodec([OLD, NEW]).decode(stored, CONTEXT) == plain


def test_every_byte_of_a_value_is_guarded() -> None:
    codec = AesGcmCodec([NEW])
    stored = codec.encode(b"value", CONTEXT)
    for place in range(len(stored)):
        with pytest.raises(PayloadUnreadable):
            codec.decode(stored[:place] + bytes([stored[place] ^ 1]) + stored[place + 1 :], CONTEXT)
    with pytest.raises(PayloadUnreadable):
        codec.decode(stored, b"there")


@pytest.mark.parametrize("words", ["~", "~1", "~1 minute left", "~2AAAA", "line", "", "~1é"])
def test_words_that_begin_like_a_sealed_text_are_words(words: str) -> None:
    seals = Seals(AesGcmCodec([NEW]))
    assert seals.open_words(seals.seal_words(words, CONTEXT), CONTEXT) == words
    assert seals.open_words(words, CONTEXT) == words  # from before


def test_a_form_of_a_newer_release_is_unreadable() -> None:
    with pytest.raises(PayloadUnreadable, match="newer release"):
        Seals(AesGcmCodec([NEW])).opened("~2AAAA", CONTEXT)


@job(NAME)
async def stepped(ctx: JobContext) -> int:
    return await ctx.step.run("one", int, 7)


async def test_a_worker_without_the_key_holds_the_job_and_one_with_it_runs_it() -> None:
    store = MemoryDriver()
    answer = await sealing(store, AesGcmCodec([OLD])).enqueue(new_job(payload="{}"))
    async with working(stepped, driver=sealing(store, AesGcmCodec([NEW]))) as bench:
        await bench.until("attempt.held", answer.id)
        view = await bench.view(answer.id)
        assert (view.state, view.counters.attempt) == (State.HELD, 0)
        assert view.error is not None
        assert view.error.code == "PAYLOAD_UNREADABLE"
        assert "which this process does not have" in (view.state_reason or "")
    driver = sealing(store, AesGcmCodec([NEW, OLD]))
    await driver.release_held(answer.id)
    async with working(stepped, driver=driver) as bench:
        await bench.until("attempt.completed", answer.id)
        assert (await bench.view(answer.id)).result == "7"


async def test_a_worker_that_cannot_read_a_step_holds_the_run() -> None:
    store = MemoryDriver()
    first = sealing(store, AesGcmCodec([OLD]))
    calls: list[int] = []

    @job(NAME)
    async def failing(ctx: JobContext) -> int:
        one = await ctx.step.run("one", int, 7)
        calls.append(one)
        raise RuntimeError("once")

    job_id = new_job().id
    async with working(failing, driver=first) as bench:
        await first.enqueue(NewJob(id=job_id, name=NAME, payload="{}", max_attempts=1))
        await bench.until("attempt.dead", job_id)
    await first.retry(job_id)
    # The payload was stored before there was a key, say; the step was not.
    envelope = store._store.envelopes[job_id]
    object.__setattr__(envelope.job, "payload", "{}")
    async with working(failing, driver=sealing(store, AesGcmCodec([NEW]))) as bench:
        await bench.until("attempt.held", job_id)
        view = await bench.view(job_id)
        assert "PAYLOAD_UNREADABLE" in (view.state_reason or "")
    assert calls == [7]


async def test_a_service_without_the_key_shows_the_job_and_says_why() -> None:
    async with memory_env() as env:
        env.driver = sealing(env.below, AesGcmCodec([OLD]))
        await env.driver.publish_job_types([job_type()])
        async with Api(env).client as client:
            made = (await client.post("/v1/jobs", json={"name": NAME, "payload": {"a": 1}})).json()
            assert (await client.get(f"/v1/jobs/{made['id']}")).json()["payload"] == {"a": 1}
        for driver in (env.below, sealing(env.below, AesGcmCodec([NEW]))):
            env.driver = driver
            async with Api(env).client as client:
                shown = await client.get(f"/v1/jobs/{made['id']}")
                assert shown.status_code == 200
                assert shown.json()["payload"].startswith("[PAYLOAD_UNREADABLE: it is encrypted")
                again = await client.post(f"/v1/jobs/{made['id']}/duplicate", json={})
                assert (again.status_code, again.json()["code"]) == (409, "PAYLOAD_UNREADABLE")
                assert (await client.get("/v1/jobs")).status_code == 200
