"""What every life of one worker is made with, and the parts made of nothing else. Used by `session` and `worker`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..domain.snapshot import Due
from ..drivers.protocol import JobDriver
from ..drivers.webhooks import webhooks_of
from ..jobs.callbacks import carrying
from ..jobs.client import Client
from ..jobs.registry import Registry
from ..lifecycle.role import Life
from ..lifecycle.timers import Timers
from ..observability.telemetry import Telemetry
from ..steps.points import AtPoint
from .beside import Beside
from .housekeeping import Housekeeping
from .maintenance import Maintenance
from .options import WorkerOptions
from .tellings import Tellings


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """What every life of one worker is made with."""

    driver: JobDriver
    registry: Registry
    options: WorkerOptions
    telemetry: Telemetry
    roll: Callable[[], float]
    monotonic: Callable[[], float]
    boot_clock: Callable[[], float]
    client: Client | None
    beside: Callable[[], Beside]
    on_stall: Callable[[], None]
    on_asked: Callable[[str], None]
    timers: Timers | None = None
    at: AtPoint | None = None


def maintenance_of(
    kit: Kit,
    life: Life,
    *,
    on_ready: Callable[[], None],
    on_due: Callable[[Due], None],
    may_reap: Callable[[], bool],
    on_bulk: Callable[[], None],
    on_tell: Callable[[], None],
) -> Maintenance:
    """Make the sweeps of a life."""
    return Maintenance(
        driver=kit.driver,
        options=kit.options,
        telemetry=kit.telemetry,
        leaving=life.is_leaving,
        on_ready=on_ready,
        on_due=on_due,
        may_reap=may_reap,
        roll=kit.roll,
        monotonic=kit.monotonic,
        poll_waits=kit.registry.event_poll,
        on_bulk=on_bulk,
        on_tell=on_tell,
    )


def housekeeping_of(kit: Kit, life: Life) -> Housekeeping:
    """Build what deletes rows that are over, for one life."""
    return Housekeeping(
        driver=kit.driver,
        options=kit.options,
        telemetry=kit.telemetry,
        leaving=life.is_leaving,
        tables=kit.registry.tables,
        roll=kit.roll,
        monotonic=kit.monotonic,
    )


def tellings_of(kit: Kit, life: Life) -> Tellings:
    """Build what hands ends on that are to be told, for one life."""
    return Tellings(
        webhooks_of(kit.driver),
        make=carrying(kit.options.callback_queue),
        telemetry=kit.telemetry,
        leaving=life.is_leaving,
    )
