"""What a body takes and gives, read off its annotations: the payload model, the context, the result type.

Read late, when a handle is registered or first used, so that annotations may name what is defined further down.
Called by handles; every refusal names the function and the repair.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model

from ..domain.errors import SettingsInvalid
from .context import JobContext

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True, kw_only=True)
class BodySignature:
    """How to call a body: which parameter takes the context, and how the payload's fields become parameters.

    `payload_parameter` takes the whole model; without one, `fields` maps parameters to the model's fields. `plan` has
    each parameter's name, its field if it takes one, and whether it goes by name alone. With `may_give_nothing` a body
    that returns None has no result, and there is nothing to check.
    """

    plan: tuple[tuple[str, str | None, bool], ...]
    context_parameter: str | None
    payload_parameter: str | None
    fields: Mapping[str, str]
    model: type[BaseModel]
    result: TypeAdapter[Any]
    may_give_nothing: bool = False

    def arguments(self, payload: BaseModel, context: JobContext) -> tuple[tuple[object, ...], dict[str, object]]:
        """Give positional and keyword arguments for one call."""
        positional: list[object] = []
        named: dict[str, object] = {}
        for name, field, is_named in self.plan:
            if field is not None:
                value: object = getattr(payload, field)
            else:
                value = context if name == self.context_parameter else payload
            if is_named:
                named[name] = value
            else:
                positional.append(value)
        return tuple(positional), named


def read_signature(body: Callable[..., object]) -> BodySignature:
    """Read a body's annotations.

    Raises:
        SettingsInvalid: an annotation is missing or cannot be resolved, or a type cannot be read from or kept as JSON.
    """
    hints = _resolve(body)
    order = tuple(inspect.signature(body).parameters.values())
    contexts = [parameter.name for parameter in order if hints.get(parameter.name) is JobContext]
    if len(contexts) > 1:
        raise SettingsInvalid(
            f"{title(body)} takes two JobContext parameters: {', '.join(contexts)}", fix="keep one of them"
        )
    plain = [parameter for parameter in order if parameter.name not in contexts]
    for parameter in plain:
        _refuse_parameter(body, parameter, hints)
    whole = plain[0] if len(plain) == 1 and _is_model(hints[plain[0].name]) else None
    fields = {} if whole else {parameter.name: f"field_{index}" for index, parameter in enumerate(plain)}
    return BodySignature(
        plan=tuple(
            (parameter.name, fields.get(parameter.name), parameter.kind is inspect.Parameter.KEYWORD_ONLY)
            for parameter in order
        ),
        context_parameter=contexts[0] if contexts else None,
        payload_parameter=whole.name if whole else None,
        fields=fields,
        model=hints[whole.name] if whole else _build_model(body, plain, hints, fields),
        result=_adapter(body, hints.get("return", Any)),
        may_give_nothing=hints.get("return", Any) in (Any, type(None)),
    )


def title(body: Callable[..., object]) -> str:
    """Give a body's name as it is shown to people: module and qualified name."""
    return f"{getattr(body, '__module__', '?')}.{getattr(body, '__qualname__', type(body).__qualname__)}"


def place(body: Callable[..., object]) -> str:
    """Give file and line of a body, as far as it has them."""
    code = getattr(inspect.unwrap(body), "__code__", None)
    return "unknown place" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def _resolve(body: Callable[..., object]) -> dict[str, Any]:
    try:
        return get_type_hints(body, include_extras=True)
    except NameError as exc:
        raise SettingsInvalid(
            f"an annotation of {title(body)} ({place(body)}) names {exc.name!r}, which its module does not have",
            fix="define or import it at module level, not under TYPE_CHECKING and not inside a function",
        ) from exc
    except (TypeError, SyntaxError, AttributeError) as exc:
        raise SettingsInvalid(
            f"an annotation of {title(body)} ({place(body)}) cannot be read: {exc}", fix="annotate with real types"
        ) from exc


def _is_model(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _refuse_parameter(body: Callable[..., object], parameter: inspect.Parameter, hints: Mapping[str, Any]) -> None:
    if parameter.kind in _VARIADIC:
        raise SettingsInvalid(
            f"{title(body)} ({place(body)}) takes {parameter}, which no payload can fill",
            fix="name each parameter and annotate it",
        )
    if parameter.name not in hints:
        raise SettingsInvalid(
            f"the parameter {parameter.name} of {title(body)} ({place(body)}) has no annotation",
            fix="annotate it with the type of the payload field, or with JobContext",
        )


def _build_model(
    body: Callable[..., object],
    plain: list[inspect.Parameter],
    hints: Mapping[str, Any],
    fields: Mapping[str, str],
) -> type[BaseModel]:
    # Fields get names of our own and the parameter's as alias: a parameter may be called `copy` or `_x`, a field not.
    definitions: dict[str, Any] = {
        fields[parameter.name]: (
            hints[parameter.name],
            Field(
                ... if parameter.default is inspect.Parameter.empty else parameter.default,
                alias=parameter.name,
                title=parameter.name,
            ),
        )
        for parameter in plain
    }
    name = "".join(part.capitalize() for part in getattr(body, "__name__", "job").split("_")) + "Payload"
    try:
        return create_model(name, __config__=ConfigDict(extra="forbid"), __module__=body.__module__, **definitions)
    except Exception as exc:  # hooks of the author's own types may raise anything
        raise SettingsInvalid(
            f"the parameters of {title(body)} ({place(body)}) cannot be read from JSON: {exc}",
            fix="annotate them with types pydantic knows, or take one pydantic model",
        ) from exc


def _adapter(body: Callable[..., object], annotation: Any) -> TypeAdapter[Any]:  # noqa: ANN401 # an annotation may be anything
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        json.dumps(adapter.json_schema(mode="serialization"), allow_nan=False)  # a default or a bound may be NaN
    except Exception as exc:  # as above
        raise SettingsInvalid(
            f"the return annotation of {title(body)} ({place(body)}) cannot be kept as JSON: {exc}",
            fix="return a pydantic model, a dataclass or plain JSON types",
        ) from exc
    return adapter
