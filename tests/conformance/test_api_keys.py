from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from app.domain.api_key import KeyId, KeyView, KnownKey, NewKey, NewSecret, Scope, new_id, new_token, opens, read_token
from app.domain.audit import Action, AuditEntry, AuditQuery, Target
from app.domain.errors import NotFound, PreconditionFailed
from app.drivers.api_keys import KeyStore, keys_of
from tests.support.drivers import DriverEnv
from tests.support.drivers import new_id as job_id

HOUR = timedelta(hours=1)


def store_of(env: DriverEnv) -> KeyStore:
    found = keys_of(env.driver)
    assert found is not None
    return found


def a_key(**fields: Any) -> tuple[str, NewKey]:
    key_id = new_id()
    token, secret = new_token(key_id)
    given = {"label": "ci", "tenant": "acme", "scopes": frozenset({Scope.JOBS_READ}), "created_by": "ada"} | fields
    return token, NewKey(id=key_id, secret=secret, **given)


def an_entry(action: Action, key_id: KeyId, **fields: Any) -> AuditEntry:
    return AuditEntry(id=job_id(), actor="ada", action=action, target_kind=Target.KEY, target=key_id, **fields)


async def known(env: DriverEnv, token: str) -> KnownKey | None:
    """Give the key a token opens, as the store says it now."""
    taken = read_token(token)
    assert taken is not None
    by_id = {each.identity.key_id: each for each in await store_of(env).known()}
    found = by_id.get(taken.key_id)
    return found if opens(taken, found) else None


async def test_a_key_opens_what_it_was_made_for_until_it_is_revoked(env: DriverEnv) -> None:
    token, key = a_key(queues=frozenset({"mail", "slow"}))
    made = await store_of(env).create(key)
    found = await known(env, token)
    assert found is not None
    identity = found.identity
    assert (identity.tenant, identity.scopes, identity.queues) == ("acme", key.scopes, key.queues)
    assert identity.key_id == key.id
    assert (made.last4, made.created_at, made.revoked_at) == (token[-4:], env.now(), None)
    revoked = await store_of(env).revoke(key.id, by="bob")
    assert (revoked.revoked_at, revoked.revoked_by) == (env.now(), "bob")
    assert await known(env, token) is None
    await env.advance(HOUR)
    assert await store_of(env).revoke(key.id, by="eve") == revoked


async def test_a_key_made_twice_is_one(env: DriverEnv) -> None:
    _, key = a_key()
    entry = an_entry(Action.KEY_CREATE, key.id)
    first = await store_of(env).create(key, audit=entry)
    assert await store_of(env).create(key, audit=entry) == first
    assert await store_of(env).keys() == (first,)
    assert [row.action for row in (await env.driver.audit(AuditQuery(target=key.id))).items] == ["key.create"]


async def test_a_key_expires_by_the_clock_of_the_store(env: DriverEnv) -> None:
    token, key = a_key(expires_at=env.now() + HOUR)
    await store_of(env).create(key)
    assert await known(env, token) is not None
    await env.advance(HOUR)
    assert await known(env, token) is None
    with pytest.raises(NotFound):
        await store_of(env).rotate(key.id, new_token(key.id)[1], overlap=HOUR)


async def test_two_secrets_are_taken_for_as_long_as_they_overlap(env: DriverEnv) -> None:
    first, key = a_key()
    await store_of(env).create(key)
    second, kept = new_token(key.id)
    for _ in range(2):  # repeated because its reply was lost
        view = await store_of(env).rotate(key.id, kept, overlap=HOUR, audit=an_entry(Action.KEY_ROTATE, key.id))
        assert (view.last4, view.previous_last4) == (second[-4:], first[-4:])
        assert (view.previous_until, view.rotated_at) == (env.now() + HOUR, env.now())
    assert await known(env, first) is not None
    assert await known(env, second) is not None
    third, kept = new_token(key.id)
    await store_of(env).rotate(key.id, kept, overlap=HOUR)
    assert [await known(env, token) is not None for token in (first, second, third)] == [False, True, True]
    await env.advance(HOUR)
    assert [await known(env, token) is not None for token in (first, second, third)] == [False, False, True]
    view = (await store_of(env).keys())[0]
    assert (view.previous_last4, view.previous_until) == (None, None)
    await store_of(env).revoke(key.id, by="ada")
    assert await known(env, third) is None


async def test_of_rotations_that_mean_one_secret_one_is_done(env: DriverEnv) -> None:
    first, key = a_key()
    await store_of(env).create(key)
    made = [new_token(key.id, unlike=first[-4:]) for _ in range(4)]
    entry = [an_entry(Action.KEY_ROTATE, key.id) for _ in made]
    answers = await asyncio.gather(
        *(
            store_of(env).rotate(key.id, secret, overlap=HOUR, replaces=first[-4:], audit=row)
            for (_, secret), row in zip(made, entry, strict=True)
        ),
        return_exceptions=True,
    )
    ((won, view),) = [(at, each) for at, each in enumerate(answers) if isinstance(each, KeyView)]
    assert (view.last4, view.previous_last4) == (made[won][0][-4:], first[-4:])
    late = [each for each in answers if not isinstance(each, KeyView)]
    assert [type(each) for each in late] == [PreconditionFailed] * 3
    assert f"ending in {view.last4}" in str(late[0])
    assert await known(env, first) is not None, "the secret in use is taken for the overlap"
    # Repeated because its reply was lost.
    assert await store_of(env).rotate(key.id, made[won][1], overlap=HOUR, replaces=first[-4:]) == view
    rows = (await env.driver.audit(AuditQuery(target=key.id))).items
    assert [row.action for row in rows] == ["key.rotate"]


async def test_another_tenants_key_is_absent(env: DriverEnv) -> None:
    token, key = a_key()
    await store_of(env).create(key)
    _, of_all = a_key(tenant=None)
    await store_of(env).create(of_all)
    keys = store_of(env)
    assert [view.id for view in await keys.keys(tenant="acme")] == [key.id]
    assert await keys.keys(tenant="globex") == ()
    assert len(await keys.keys()) == 2
    assert await keys.key(key.id, tenant="globex") is None
    assert await keys.key(KeyId("0" * 16)) is None
    for absent, tenant in ((key.id, "globex"), (of_all.id, "acme"), (KeyId("0" * 16), None)):
        entry = an_entry(Action.KEY_REVOKE, absent)
        with pytest.raises(NotFound):
            await keys.revoke(absent, by="eve", tenant=tenant, audit=entry)
        with pytest.raises(NotFound):
            await keys.rotate(absent, new_token(absent)[1], overlap=HOUR, tenant=tenant, audit=entry)
    assert await known(env, token) is not None
    assert (await env.driver.audit(AuditQuery())).items == ()


async def test_a_change_leaves_its_row(env: DriverEnv) -> None:
    _, key = a_key()
    await store_of(env).create(key, audit=an_entry(Action.KEY_CREATE, key.id, tenant="acme"))
    await store_of(env).rotate(key.id, new_token(key.id)[1], overlap=HOUR, audit=an_entry(Action.KEY_ROTATE, key.id))
    for _ in range(2):
        await store_of(env).revoke(key.id, by="ada", audit=an_entry(Action.KEY_REVOKE, key.id))
    rows = (await env.driver.audit(AuditQuery(target=key.id))).items
    assert [(row.action, row.outcome) for row in rows] == [
        ("key.revoke", "unchanged"),
        ("key.revoke", "done"),
        ("key.rotate", "done"),
        ("key.create", "done"),
    ]
    assert not any(key.secret.digest.hex() in row.details for row in rows)


async def test_use_is_noted_at_most_once_a_minute(env: DriverEnv) -> None:
    _, key = a_key()
    await store_of(env).create(key)
    seen = []
    for _ in range(5):
        await store_of(env).used([key.id, key.id, KeyId("0" * 16)])
        seen.append((await store_of(env).keys())[0].last_used_at)
        await env.advance(timedelta(seconds=30))
    assert seen == [env.now() - timedelta(seconds=age) for age in (150, 150, 90, 90, 30)]


async def test_the_newest_keys_come_first(env: DriverEnv) -> None:
    made = []
    for _ in range(3):
        _, key = a_key()
        made.append((await store_of(env).create(key)).id)
        await env.advance(timedelta(seconds=1))
    assert [view.id for view in await store_of(env).keys(limit=2)] == made[:0:-1]


async def test_sessions_that_have_ended_are_remembered_for_a_while(env: DriverEnv) -> None:
    first, second = uuid4(), uuid4()
    await store_of(env).end_session(first, lasts=HOUR)
    await store_of(env).end_session(first, lasts=2 * HOUR)
    await env.advance(HOUR / 2)
    await store_of(env).end_session(second, lasts=HOUR)
    assert await store_of(env).ended_sessions() == {first, second}
    await env.advance(HOUR / 2)
    assert await store_of(env).ended_sessions() == {second}
    await env.advance(HOUR / 2)
    assert await store_of(env).ended_sessions() == frozenset()


def test_a_secret_that_is_nobodys_opens_nothing() -> None:
    token, secret = new_token(KeyId("0" * 16))
    taken = read_token(token)
    assert taken is not None
    assert taken.digest == secret.digest
    assert not opens(taken, None)
    assert token[-64:] not in repr(taken)
    assert read_token(token + "\n") is None
    _, other = new_token(KeyId("0" * 16))
    assert isinstance(other, NewSecret)
    assert other.digest != secret.digest
