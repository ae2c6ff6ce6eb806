"""Webhooks from settings: the master keys, what carries deliveries, and the verbs on webhooks.

A part of the composition root, apart because only processes with a master key need most of it. Builds, decides nothing.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from ..control.webhooks import WebhookControl
from ..domain.errors import SettingsInvalid
from ..domain.webhook_address import Allowed
from ..domain.webhook_secret import Masters
from ..drivers.protocol import JobDriver
from ..drivers.webhooks import webhooks_of
from ..jobs.admission import wall_clock
from ..jobs.handle import JobHandle
from ..observability.telemetry import Telemetry


class WebhookSettings(Protocol):
    """The settings of webhooks."""

    @property
    def callback_key_file(self) -> Path | None:
        """Give the file with the master keys."""
        ...

    @property
    def callback_allow(self) -> tuple[str, ...]:
        """Give the hosts and networks that may be called though they are private."""
        ...

    @property
    def callback_queue(self) -> str:
        """Give the queue that carries deliveries."""
        ...

    @property
    def callback_timeout_seconds(self) -> float:
        """Give how long a try may take."""
        ...


def carriers_of(settings: WebhookSettings, driver: JobDriver, telemetry: Telemetry) -> tuple[JobHandle[Any, None], ...]:
    """Give the job type that carries deliveries; none without a master key, or a store of webhooks.

    Raises:
        SettingsInvalid: the file or the list cannot work.
    """
    store, masters = webhooks_of(driver), _masters(settings)
    if store is None or masters is None:
        return ()
    # The HTTP client takes its time to load, and most processes send nothing.
    from .carrier import Carrier  # noqa: PLC0415 - see above
    from .sender import Sender  # noqa: PLC0415 - same

    sender = Sender(
        allowed=Allowed.of(settings.callback_allow), timeout=timedelta(seconds=settings.callback_timeout_seconds)
    )
    carrier = Carrier(store=store, masters=masters, sender=sender, telemetry=telemetry, now=wall_clock)
    return (carrier.handle(settings.callback_queue),)


def webhook_control(settings: WebhookSettings, driver: JobDriver) -> WebhookControl:
    """Build the verbs on webhooks.

    Raises:
        SettingsInvalid: the file or the list cannot work.
    """
    return WebhookControl(webhooks_of(driver), masters=_masters(settings), allowed=Allowed.of(settings.callback_allow))


def _masters(settings: WebhookSettings) -> Masters | None:
    path = settings.callback_key_file
    if path is None:
        return None
    try:
        lines = path.read_text(encoding="ascii").split()
    except (OSError, UnicodeDecodeError) as exc:
        raise SettingsInvalid(
            f"the key file {path} cannot be read: {type(exc).__name__}",
            fix="point OUTLAST_CALLBACK_KEY_FILE to a readable text file with one key per line",
        ) from exc
    return Masters(lines)
