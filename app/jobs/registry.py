"""The job types and schedules of a process, gathered from the modules it was told of, and the tables it purges.

Importing a module registers nothing: a registry is built by looking through named modules and entry points, and what
is none of these is passed over in silence. Called by the composition root and the CLI.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any, TypeAlias

from ..domain.errors import JobNameTaken, OutlastError, SettingsInvalid
from ..domain.retention import TableRule
from .handle import JobHandle
from .schedule import Schedule

ENTRY_POINT_GROUP = "outlast.jobs"
EVENT_POLL = timedelta(seconds=30)
_OURS = tuple(f"{Path(__file__).parents[1] / part}{os.sep}" for part in ("jobs", "domain"))

AnyHandle: TypeAlias = JobHandle[Any, Any]
Declared: TypeAlias = AnyHandle | Schedule | TableRule


class Registry:
    """Job types by name, and schedules by theirs; iterates over the job types in code-point order of the names."""

    def __init__(self, declared: Iterable[Declared] = ()) -> None:
        """Take handles and schedules; one twice is one.

        Raises:
            JobNameTaken: two handles or two schedules share a name, or one body has two names.
            SettingsInvalid: a handle's annotations or templates cannot work.
        """
        self._by_name: dict[str, AnyHandle] = {}
        self._schedules: dict[str, Schedule] = {}
        self._tables: dict[str, TableRule] = {}
        bodies: dict[int, AnyHandle] = {}
        for handle in declared:
            if isinstance(handle, Schedule):
                self._take_schedule(handle)
                continue
            if isinstance(handle, TableRule):
                self._take_table(handle)
                continue
            if self._by_name.get(handle.name) is handle:
                continue
            _refuse_taken(handle, self._by_name.get(handle.name), bodies.get(id(handle.body)))
            _read(handle)
            self._by_name[handle.name] = handle
            bodies[id(handle.body)] = handle

    @classmethod
    def from_modules(cls, names: Sequence[str]) -> Registry:
        """Import modules by name and take handles and schedules among their attributes; submodules are not looked into.

        Raises:
            SettingsInvalid: a module cannot be imported (module, file and line in the message).
            JobNameTaken: as for the registry itself.
        """
        return cls(_declared_in_modules(names))

    @classmethod
    def from_entry_points(cls) -> Registry:
        """Take the handles, schedules or modules that installed distributions name under `outlast.jobs`.

        Raises:
            SettingsInvalid: an entry point cannot be loaded.
            JobNameTaken: as for the registry itself.
        """
        return cls(_declared_in_entry_points())

    @property
    def names(self) -> frozenset[str]:
        """Give the names of all job types."""
        return frozenset(self._by_name)

    def get(self, name: str) -> AnyHandle | None:
        """Give the handle of a name, None for a name that is not here."""
        return self._by_name.get(name)

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """Give the schedules in code-point order of their names."""
        return tuple(self._schedules[name] for name in sorted(self._schedules))

    @property
    def tables(self) -> tuple[TableRule, ...]:
        """Give the tables of the application that are kept in bounds, in code-point order of their names."""
        return tuple(self._tables[name] for name in sorted(self._tables))

    @property
    def retentions(self) -> dict[str, timedelta]:
        """Give the job types with a retention of their own."""
        kept = ((handle.name, handle.policy.retention) for handle in self)
        return {name: retention for name, retention in kept if retention is not None}

    @property
    def has_limits(self) -> bool:
        """Say whether any job type is under a limit or a rate."""
        return any(handle.policy.limits or handle.policy.rate is not None for handle in self._by_name.values())

    @property
    def event_poll(self) -> timedelta:
        """Give how often to search the store for waiting runs that a wake-up missed: the least that a type asks for."""
        asked = (handle.policy.event_poll for handle in self._by_name.values())
        return min((poll for poll in asked if poll is not None), default=EVENT_POLL)

    def __iter__(self) -> Iterator[AnyHandle]:
        return iter([self._by_name[name] for name in sorted(self._by_name)])

    def __len__(self) -> int:
        return len(self._by_name)

    def _take_schedule(self, schedule: Schedule) -> None:
        other = self._schedules.setdefault(schedule.name, schedule)
        if other is not schedule:
            raise JobNameTaken(
                f"the schedule {schedule.name!r} is declared at {other.place} and at {schedule.place}",
                fix="rename one of them, or stop loading one of their modules",
            )

    def _take_table(self, rule: TableRule) -> None:
        other = self._tables.setdefault(rule.table, rule)
        if other != rule:
            raise SettingsInvalid(
                f"the table {rule.table!r} is purged by two rules: {other} and {rule}", fix="keep one of them"
            )

    def __contains__(self, name: object) -> bool:
        return name in self._by_name


def load_registry(modules: Sequence[str], *, also: Sequence[AnyHandle] = ()) -> Registry:
    """Build the registry of a process from the modules it names, from entry points and from what is `also` in it.

    Raises:
        SettingsInvalid: a module or entry point cannot be imported, or a job type cannot work.
        JobNameTaken: two job types claim one name.
    """
    return Registry([*_declared_in_modules(modules), *_declared_in_entry_points(), *also])


def _declared_in_modules(names: Sequence[str]) -> Iterator[Declared]:
    for name in names:
        yield from _declared_in(_import(name))


def _declared_in_entry_points() -> Iterator[Declared]:
    for entry_point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda each: (each.name, each.value)):
        yield from _declared_in(_load(entry_point))


def _declared_in(found: object) -> list[Declared]:
    if isinstance(found, JobHandle | Schedule | TableRule):
        return [found]
    if isinstance(found, ModuleType):
        return [value for value in vars(found).values() if isinstance(value, JobHandle | Schedule | TableRule)]
    return []


def _import(name: str) -> ModuleType:
    try:
        return import_module(name)
    except OutlastError as exc:
        raise _placed(exc, f"the module {name}", _where(exc)) from exc
    except (Exception, SystemExit) as exc:
        raise _failed(f"the module {name}", exc) from exc


def _load(entry_point: EntryPoint) -> object:
    try:
        return entry_point.load()
    except OutlastError as exc:
        raise _placed(exc, f"the entry point {entry_point.name} = {entry_point.value}", _where(exc)) from exc
    except (Exception, SystemExit) as exc:
        raise _failed(f"the entry point {entry_point.name} = {entry_point.value}", exc) from exc


def _read(handle: AnyHandle) -> None:
    """Read annotations, templates and schema, so that a mistake stops the start and not the first job."""
    try:
        _ = handle.job_type
    except OutlastError as exc:
        raise _placed(exc, f"the job {handle.name}", handle.place) from exc


def _placed(error: OutlastError, what: str, where: str | None) -> OutlastError:
    """Give a declaration's error again, with the place of the declaration."""
    at = "" if where is None or where in error.cause else f", at {where}"
    return type(error)(f"{what} cannot be loaded{at}: {error.cause}", fix=error.fix, **error.details)


def _failed(what: str, exc: BaseException) -> SettingsInvalid:
    said = f"{type(exc).__name__}: {exc}"
    where = _where(exc)
    if where is None:
        return SettingsInvalid(
            f"{what} cannot be imported: {said}",
            fix="check its name in OUTLAST_JOBS, and start where it can be imported (PYTHONPATH)",
        )
    return SettingsInvalid(f"{what} fails to import at {where}: {said}", fix=f"correct {where}")


def _where(exc: BaseException) -> str | None:
    """Give file and line of the last frame outside the import machinery and what declarations are made with."""
    if isinstance(exc, SyntaxError) and exc.filename is not None:
        return f"{exc.filename}:{exc.lineno}"
    frames = [
        f"{frame.f_code.co_filename}:{line}"
        for frame, line in walk_tb(exc.__traceback__)
        if not _is_ours(frame.f_code.co_filename)
    ]
    return frames[-1] if frames else None


def _is_ours(filename: str) -> bool:
    return "importlib" in filename or filename.startswith(("<", *_OURS))


def _refuse_taken(handle: AnyHandle, same_name: AnyHandle | None, same_body: AnyHandle | None) -> None:
    if same_name is not None:
        raise JobNameTaken(
            f"{handle.name!r} is declared by {same_name.place} and by {handle.place}",
            fix="rename one of them, or stop loading one of their modules",
        )
    if same_body is not None:
        raise JobNameTaken(
            f"{handle.place} is declared as {same_body.name!r} and as {handle.name!r}",
            fix="declare a body once; give the second job a function of its own that calls the first",
        )
