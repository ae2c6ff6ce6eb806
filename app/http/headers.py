"""Headers that every answer of every listener carries, errors included, and the type of their metrics.

Answers are data for programs: they are not to be framed, sniffed, cached, or run. Used by the edge and the admin
listener, so that both say the same.
"""

from __future__ import annotations

SECURITY_HEADERS: tuple[tuple[str, str], ...] = (
    ("X-Content-Type-Options", "nosniff"),
    ("Cache-Control", "no-store"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Frame-Options", "DENY"),
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)

METRICS_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
