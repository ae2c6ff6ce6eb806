"""`uvicorn app.main:app`: the HTTP API alone, for people who bring their own server.

It drains as well as a borrowed server lets it: uvicorn stops accepting at SIGTERM and exits with 143. `outlast api`
runs the same application under our own server.
"""

from __future__ import annotations

from .asgi import asgi_app

app = asgi_app()
