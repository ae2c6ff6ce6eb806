"""Values of steps and results: to JSON text and back, by the type that a function says it returns.

What a body gets is always made of the stored text, the first time too, so that a replay cannot differ from the first
run. Called by steps, and for the results of jobs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from types import FunctionType, MethodType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints
from weakref import WeakKeyDictionary

from pydantic import TypeAdapter, ValidationError

from ..domain.errors import JsonInvalid, OutlastError, PayloadTooLarge, ResultInvalid, SettingsInvalid, StepTooLarge
from ..domain.json_text import JsonLimits, decode
from ..domain.sealed import why_unreadable
from .encoding import UnencodableError, encode_value, refuse_silent_losses

_MOST_KEPT = 1000  # adapters of one worker
_WRAPPERS = (Awaitable, Coroutine)
_TYPES: Mapping[str, frozenset[type]] = {
    kind: frozenset(types)
    for kind, types in {
        "int": (int,),
        "str": (str,),
        "bool": (bool,),
        "float": (float,),
        "none": (type(None),),
        "any": (int, str, bool, float, type(None)),
    }.items()
}
# A serialiser's own text that every reader reads alike and no rule of form forbids; anything else is looked into.
_SHORT_SCALAR = re.compile(r'-?[0-9]{1,18}(?:\.[0-9]{1,18})?|true|false|null|"[ !#-\[\]-~]{0,200}"')


_SHORT = 10**18  # a whole number below it is written and read alike by everyone


class UndecodableError(Exception):
    """A stored text does not fit a type any more; the message says where, without the value."""


def to_text(
    adapter: TypeAdapter[Any],
    value: object,
    *,
    of: str | Callable[[], str],
    max_bytes: int,
    too_large: type[OutlastError] = ResultInvalid,
) -> str | None:
    """Give a value as JSON text, None for None; `of` names it in messages, or is asked for its name.

    Raises:
        ResultInvalid: it is not of the annotated type, or has no JSON form. `too_large`: it is over a limit.
    """
    try:
        refuse_silent_losses(value)
        serializer = adapter.serializer  # what the adapter itself would call, at the cost of as much again
        is_sure = _is_sure(adapter, value)
        text = encode_value(partial(serializer.to_json, value), partial(serializer.to_python, value), is_sure=is_sure)
        if _SHORT_SCALAR.fullmatch(text) is None or len(text) > max_bytes:
            decode(text, limits=JsonLimits(max_bytes=max_bytes, max_keys=max_bytes, max_nodes=max_bytes))
    except (UnencodableError, JsonInvalid) as exc:
        raise ResultInvalid(
            f"{of if isinstance(of, str) else of()} cannot be stored: {exc.args[0]}",
            fix="return what the return annotation says, in values that JSON can carry",
        ) from exc
    except PayloadTooLarge as exc:
        raise too_large(
            f"{of if isinstance(of, str) else of()} is too large: {exc.cause}",
            fix="store the data elsewhere and return a reference to it",
        ) from exc
    return None if value is None else text


def _is_sure(adapter: TypeAdapter[Any], value: object) -> bool:
    """Say whether a value is of the adapter's type beyond doubt: a plain one, written in the usual way."""
    schema = adapter.core_schema
    return len(schema) == 1 and type(value) in _TYPES.get(schema["type"], ())


def from_text(adapter: TypeAdapter[Any], text: str | None) -> Any:  # noqa: ANN401 # what the annotation says
    """Give the value of a stored text.

    Raises:
        UndecodableError: it does not fit.
    """
    if text is None:
        return None
    try:
        return adapter.validator.validate_json(text)
    except ValidationError as exc:
        if (sealed := why_unreadable(text)) is not None:
            raise UndecodableError(f"{sealed.code}: {sealed.cause}; {sealed.fix}") from exc
        first = exc.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the top"
        raise UndecodableError(f"{first['msg']} at {where}") from exc


class Returned(NamedTuple):
    """What a function returns. `is_async`: calling it gives what has to be awaited and does nothing else yet."""

    adapter: TypeAdapter[Any]
    is_async: bool


class Values:
    """Encodes what steps give, and decodes it. `max_bytes` bounds one value."""

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._adapters: dict[object, TypeAdapter[Any]] = {}
        # Reading annotations costs more than the rest of a step; a function keeps those it was defined with.
        self._of_functions: WeakKeyDictionary[Callable[..., object], Returned] = WeakKeyDictionary()

    def returned_by(self, fn: Callable[..., object]) -> Returned:
        """Give what reads and writes the values that a function returns, plain JSON without an annotation, and how.

        Raises:
            SettingsInvalid: its return annotation cannot be resolved, or has no JSON form.
        """
        if type(fn) is not FunctionType:
            while isinstance(fn, partial):
                fn = fn.func
            if isinstance(fn, MethodType):
                fn = fn.__func__
        if not isinstance(fn, FunctionType):
            return Returned(self._of_annotation(_returned_type(fn), fn), _is_async(fn))
        known = self._of_functions.get(fn)
        if known is None:
            known = Returned(self._of_annotation(_returned_type(fn), fn), _is_async(fn))
            self._of_functions[fn] = known
        return known

    def kept(self, adapter: TypeAdapter[Any], value: object, *, step: str) -> tuple[str | None, Any]:
        """Give the text of a step's value, and the value as every replay will have it, made of the text.

        Raises:
            ResultInvalid: it cannot be stored, or not be read back by its type.
            StepTooLarge: it is over the limit.
        """
        if type(value) is int and -_SHORT < value < _SHORT and _is_sure(adapter, value):
            return str(value), value
        text = to_text(
            adapter, value, of=lambda: f"the value of step {step!r}", max_bytes=self._max_bytes, too_large=StepTooLarge
        )
        try:
            return text, from_text(adapter, text)
        except UndecodableError as exc:
            raise ResultInvalid(
                f"the value of step {step!r} cannot be read back by its return annotation: {exc}",
                fix="return what the return annotation says, in values that JSON can carry",
            ) from exc

    def _of_annotation(self, annotation: object, fn: Callable[..., object]) -> TypeAdapter[Any]:
        try:
            known = self._adapters.get(annotation)
        except TypeError:  # an annotation that cannot be hashed
            return _adapter(annotation, fn)
        if known is None:
            known = _adapter(annotation, fn)
            if len(self._adapters) < _MOST_KEPT:
                self._adapters[annotation] = known
        return known


def _adapter(annotation: Any, fn: Callable[..., object]) -> TypeAdapter[Any]:  # noqa: ANN401 # an annotation may be anything
    try:
        return TypeAdapter(annotation)
    except Exception as exc:  # hooks of the author's own types may raise anything
        raise SettingsInvalid(
            f"the return annotation of {_title(fn)} cannot be kept as JSON: {exc}",
            fix="return a pydantic model, a dataclass or plain JSON types",
        ) from exc


def _returned_type(fn: Callable[..., object]) -> object:
    """Give the type of what awaiting or calling a function gives; Any where it does not say."""
    if isinstance(fn, type):
        return fn
    target = inspect.unwrap(fn)
    if not inspect.isroutine(target):
        target = type(target).__call__
    try:
        hint: object = get_type_hints(target, include_extras=True).get("return", Any)
    except NameError as exc:
        raise SettingsInvalid(
            f"an annotation of {_title(fn)} names {exc.name!r}, which its module does not have",
            fix="define or import it at module level, not under TYPE_CHECKING and not inside a function",
        ) from exc
    except (TypeError, SyntaxError, AttributeError) as exc:
        raise SettingsInvalid(
            f"an annotation of {_title(fn)} cannot be read: {exc}", fix="annotate with real types"
        ) from exc
    if get_origin(hint) in _WRAPPERS:
        return get_args(hint)[-1]
    return hint


def _is_async(fn: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(type(fn), "__call__", None))  # noqa: B004


def _title(fn: Callable[..., object]) -> str:
    return f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"
