"""Errors of a request: what the HTTP edge refuses before anything reaches the store."""

from __future__ import annotations

from .fault import OutlastError


class IdempotencyKeyReused(OutlastError):
    """The `Idempotency-Key` header was used for another request."""

    code = "IDEMPOTENCY_KEY_REUSED"
    title = "The request key belongs to another request"


class IdempotencyInFlight(OutlastError):
    """The first request with this `Idempotency-Key` header has not ended."""

    code = "IDEMPOTENCY_IN_FLIGHT"
    title = "The first request with this key is still running"
    retryable = True


class NotFound(OutlastError):
    """No such thing."""

    code = "NOT_FOUND"
    title = "No such thing"


class RequestInvalid(OutlastError):
    """A field of the request is missing, unknown or out of bounds."""

    code = "REQUEST_INVALID"
    title = "The request is not valid"


class JsonInvalid(OutlastError):
    """The text is not JSON that can be kept and given back."""

    code = "JSON_INVALID"
    title = "Not acceptable JSON"


class MediaUnsupported(OutlastError):
    """The body is not `application/json`, or is encoded."""

    code = "MEDIA_UNSUPPORTED"
    title = "Unsupported media"


class PreconditionRequired(OutlastError):
    """A conditional request is needed."""

    code = "PRECONDITION_REQUIRED"
    title = "If-Match is needed"


class PreconditionFailed(OutlastError):
    """The resource changed since it was read."""

    code = "PRECONDITION_FAILED"
    title = "The resource has changed"


class CountChanged(OutlastError):
    """The number of matching rows is not the confirmed one."""

    code = "COUNT_CHANGED"
    title = "The count has changed"


class CursorInvalid(OutlastError):
    """The cursor is not one this endpoint gave out for these filters."""

    code = "CURSOR_INVALID"
    title = "The cursor is not valid"


class Unauthenticated(OutlastError):
    """No key, or a key that is not valid."""

    code = "UNAUTHENTICATED"
    title = "A valid key is needed"


class Forbidden(OutlastError):
    """The key may not do this."""

    code = "FORBIDDEN"
    title = "The key may not do this"


class RateLimited(OutlastError):
    """Too many requests."""

    code = "RATE_LIMITED"
    title = "Too many requests"
    retryable = True


class TenantFull(OutlastError):
    """As many jobs of the tenant wait as the API takes in."""

    code = "TENANT_FULL"
    title = "The tenant has too many jobs waiting"
    retryable = True


class QueryTooSlow(OutlastError):
    """What was to be read could not be found or counted in time; the reading was ended, and nothing was changed."""

    code = "QUERY_TOO_SLOW"
    title = "Too slow, narrow the filter"
    retryable = True


class CallbackRefused(OutlastError):
    """The callback's address is not one this service may call."""

    code = "CALLBACK_REFUSED"
    title = "The callback address is refused"
