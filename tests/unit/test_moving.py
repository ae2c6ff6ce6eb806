"""Whose webhook a job calls back that goes to another database."""

from __future__ import annotations

import pytest

from app.domain.moving import Receiver, callback_there
from app.domain.state import State
from app.domain.webhook import Callback, WebhookId

HERE = "wh_0000000000000001"
SHOP = Receiver(HERE, "shop", "https://hooks.example.com/jobs")


def there(number: int, label: str = "shop", url: str = SHOP.url) -> Receiver:
    return Receiver(f"wh_{number:016x}", label, url)


@pytest.mark.parametrize(
    ("was", "known", "url", "found"),
    [
        (SHOP, [there(7)], None, 7),
        (SHOP, [there(7, url="https://elsewhere.example.com/"), there(8, "other")], None, 7),
        (SHOP, [there(7, url="https://elsewhere.example.com/"), there(8)], None, 8),
        (SHOP, [there(7), there(8)], None, None),
        (SHOP, [there(7, "other")], None, None),
        (SHOP, [], None, None),
        (SHOP, [there(7), there(1, "renamed")], None, 1),
        (None, [there(7)], None, 1),
        (SHOP, [there(7)], "https://hooks.example.com/other", 7),
        (SHOP, [there(7, url="https://elsewhere.example.com/")], "https://hooks.example.com/other", None),
    ],
)
def test_the_webhook_of_the_same_label_is_called_back(
    was: Receiver | None, known: list[Receiver], url: str | None, found: int | None
) -> None:
    asked = Callback(webhook=WebhookId(HERE), url=url, ends=frozenset({State.DEAD}))
    text = callback_there(asked.text(), was, known)
    if found is None:
        assert text is None
    else:
        assert text is not None
        expected = Callback(webhook=WebhookId(f"wh_{found:016x}"), url=url, ends=asked.ends)
        assert Callback.of(text) == expected
