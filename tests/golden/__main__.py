"""`make golden`: write the traces of this version, once, when it is made.

Those of a version that was released never change: `--again` is for the version at work. It starts a PostgreSQL of its
own, as tests do.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from app import __version__
from app.replay.line import line_of
from tests.golden.record import recorded
from tests.golden.test_golden import GOLDEN
from tests.support import postgres


def main() -> None:
    """Write `runs.ndjson` of this version."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--again", action="store_true", help="replace what is there")
    file = GOLDEN / __version__ / "runs.ndjson"
    if file.exists() and not arguments.parse_args().again:
        raise SystemExit(f"{file} is there; --again replaces it, which only a version that was not released may")
    cluster = postgres.run_cluster()
    postgres.start_once(cluster)
    try:
        server = postgres.Server(cluster.dsn(postgres.SUPERUSER_DATABASE), worker="golden")
        try:
            url = server.url(server.create())
            traces = asyncio.run(recorded(url, version=__version__))
        finally:
            server.close()
    finally:
        postgres.end_run(str(os.getpid()))
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"".join(line_of(trace) for trace in traces))
    sys.stdout.write(f"{len(traces)} traces in {file}\n")


if __name__ == "__main__":
    main()
