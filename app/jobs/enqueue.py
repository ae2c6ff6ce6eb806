"""From a call in code to an enqueue request: the payload becomes text, the options become fields.

Called by handles.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields as fields_of
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from ..domain.errors import OutboxNoTx, PayloadInvalid, RequestInvalid
from ..steps.encoding import UnencodableError, encode_value
from .client import current_session
from .describe import Declared
from .request import EnqueueRequest, refuse_request

_FIELDS: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
_OPTIONS = frozenset(field.name for field in fields_of(EnqueueRequest)) - {"name", "payload_text"}


def request_of(handle: Declared, payload: object, options: Mapping[str, Any]) -> EnqueueRequest:
    """Make the request for one job.

    Raises:
        PayloadInvalid: the payload has no JSON form, or is another model than the body's.
        RequestInvalid: an option that is none, or a `meta` that is no mapping; admission judges the others.
    """
    return next(requests_of(handle, (payload,), options))


def requests_of(handle: Declared, payloads: Iterable[object], options: Mapping[str, Any]) -> Iterator[EnqueueRequest]:
    """Make the requests for many jobs with the same options, one by one; raises what `request_of` raises."""
    fields: dict[str, Any] = dict(options)
    fields.pop("session", None)
    fields.pop("mode", None)
    unknown = sorted(fields.keys() - _OPTIONS)
    if unknown:
        raise RequestInvalid(
            f"{', '.join(unknown)}: no such option of an enqueue", fix=f"the options are {', '.join(sorted(_OPTIONS))}"
        )
    meta: object = fields.pop("meta", None)
    fields["meta"] = None if meta is None else _meta_text(meta)
    if fields.get("tags", ()) is None:
        del fields["tags"]
    if not isinstance(payloads, Iterable):
        raise RequestInvalid(f"a {type(payloads).__name__} is no list of payloads", fix="pass a list of payloads")
    for payload in payloads:
        yield EnqueueRequest(name=handle.name, payload_text=payload_text(handle, payload), **fields)


def payload_text(handle: Declared, payload: object) -> str:
    """Give a payload as JSON text: the body's own model, or a mapping of its fields.

    Raises:
        PayloadInvalid: it is neither, or has no JSON form.
    """
    model = handle.signature.model
    try:
        if isinstance(payload, model):
            return encode_value(payload.model_dump_json, payload.model_dump)
        if isinstance(payload, Mapping):
            fields = dict(payload)
            return encode_value(partial(_FIELDS.dump_json, fields), partial(_FIELDS.dump_python, fields))
    except UnencodableError as exc:
        raise PayloadInvalid(
            f"the payload of {handle.name} has no JSON form: {exc}", fix="send values that JSON can carry"
        ) from exc
    raise PayloadInvalid(
        f"{handle.name} takes {model.__name__}, not {type(payload).__name__}",
        fix=f"pass a {model.__name__}" if handle.signature.payload_parameter else "pass a dict of its parameters",
    )


def _meta_text(meta: object) -> str:
    if not isinstance(meta, Mapping) or not all(isinstance(key, str) for key in meta):
        refuse_request("meta", "must be a flat mapping of texts to values", fix="pass meta={'ticket': 4711}, say")
    try:
        return json.dumps(dict(meta), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (ValueError, TypeError, RecursionError) as exc:
        raise RequestInvalid(
            "meta must be a flat mapping of texts, numbers and booleans", fix="correct meta", pointer="/meta"
        ) from exc


def session_of(options: Mapping[str, Any]) -> object | None:
    """Give the session to stage in: the one that was given, else the current one. None: publish at once.

    Raises:
        OutboxNoTx: `mode="required"`, and there is none.
        RequestInvalid: another mode.
    """
    mode, session = options.get("mode", "auto"), options.get("session")
    if mode not in ("auto", "required"):
        raise RequestInvalid(f"mode={mode!r} is not a mode", fix="use 'auto' or 'required'", pointer="/mode")
    found = current_session() if session is None else session
    if found is None and mode == "required":
        raise OutboxNoTx(
            "mode='required' asks for the caller's transaction, and there is none",
            fix="pass session=, enqueue inside the transaction that use_client's current_session gives,"
            " or use mode='auto' to publish at once",
        )
    return found
