"""The job types of a process, gathered from the modules it was told of.

Importing a module registers nothing: a registry is built by looking through named modules and entry points, and what
is not a handle is passed over in silence. Called by the composition root and the CLI.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from traceback import walk_tb
from types import ModuleType
from typing import Any, TypeAlias

from ..domain.errors import JobNameTaken, OutlastError, SettingsInvalid
from .handle import JobHandle

ENTRY_POINT_GROUP = "outlast.jobs"

AnyHandle: TypeAlias = JobHandle[Any, Any]


class Registry:
    """Job types by name; iterates in code-point order of the names."""

    def __init__(self, handles: Iterable[AnyHandle] = ()) -> None:
        """Take handles; one handle twice is one.

        Raises:
            JobNameTaken: two handles share a name, or one body has two names.
            SettingsInvalid: a handle's annotations or templates cannot work.
        """
        self._by_name: dict[str, AnyHandle] = {}
        bodies: dict[int, AnyHandle] = {}
        for handle in handles:
            if self._by_name.get(handle.name) is handle:
                continue
            _refuse_taken(handle, self._by_name.get(handle.name), bodies.get(id(handle.body)))
            _ = handle.job_type  # reads annotations and templates, so that a mistake stops the start
            self._by_name[handle.name] = handle
            bodies[id(handle.body)] = handle

    @classmethod
    def from_modules(cls, names: Sequence[str]) -> Registry:
        """Import modules by name and take the handles among their attributes; submodules are not looked into.

        Raises:
            SettingsInvalid: a module cannot be imported (module, file and line in the message).
            JobNameTaken: as for the registry itself.
        """
        return cls(_handles_of_modules(names))

    @classmethod
    def from_entry_points(cls) -> Registry:
        """Take the handles, or the modules of handles, that installed distributions name under `outlast.jobs`.

        Raises:
            SettingsInvalid: an entry point cannot be loaded.
            JobNameTaken: as for the registry itself.
        """
        return cls(_handles_of_entry_points())

    @property
    def names(self) -> frozenset[str]:
        """Give the names of all job types."""
        return frozenset(self._by_name)

    def get(self, name: str) -> AnyHandle | None:
        """Give the handle of a name, None for a name that is not here."""
        return self._by_name.get(name)

    def __iter__(self) -> Iterator[AnyHandle]:
        return iter([self._by_name[name] for name in sorted(self._by_name)])

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name


def load_registry(modules: Sequence[str]) -> Registry:
    """Build the registry of a process from the modules it names and from entry points.

    Raises:
        SettingsInvalid: a module or entry point cannot be imported, or a job type cannot work.
        JobNameTaken: two job types claim one name.
    """
    return Registry([*_handles_of_modules(modules), *_handles_of_entry_points()])


def _handles_of_modules(names: Sequence[str]) -> Iterator[AnyHandle]:
    for name in names:
        yield from _handles_in(_import(name))


def _handles_of_entry_points() -> Iterator[AnyHandle]:
    for entry_point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda each: (each.name, each.value)):
        yield from _handles_in(_load(entry_point))


def _handles_in(found: object) -> list[AnyHandle]:
    if isinstance(found, JobHandle):
        return [found]
    if isinstance(found, ModuleType):
        return [value for value in vars(found).values() if isinstance(value, JobHandle)]
    return []


def _import(name: str) -> ModuleType:
    try:
        return import_module(name)
    except OutlastError:
        raise  # a declaration in the module that cannot work says so itself
    except (Exception, SystemExit) as exc:
        raise _failed(f"the module {name}", exc) from exc


def _load(entry_point: EntryPoint) -> object:
    try:
        return entry_point.load()
    except OutlastError:
        raise
    except (Exception, SystemExit) as exc:
        raise _failed(f"the entry point {entry_point.name} = {entry_point.value}", exc) from exc


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
    """Give file and line of the last frame that belongs to a module, not to the import machinery."""
    if isinstance(exc, SyntaxError) and exc.filename is not None:
        return f"{exc.filename}:{exc.lineno}"
    frames = [
        f"{frame.f_code.co_filename}:{line}"
        for frame, line in walk_tb(exc.__traceback__)
        if "importlib" not in frame.f_code.co_filename and frame.f_code.co_filename != __file__
    ]
    return frames[-1] if frames else None


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
