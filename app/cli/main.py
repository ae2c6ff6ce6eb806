"""The `outlast` command: names, help and exit codes of every subcommand.

Subcommands import what they need when they run, so that `--help` answers at once. Data goes to stdout, talk to
stderr; a failure is one line of cause and one line of repair.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..domain.errors import OutlastError
from . import (
    audit,
    bulk,
    database,
    dev,
    doctor,
    drain,
    edits,
    events,
    explain,
    jobs,
    keys,
    limits,
    move,
    outbox,
    purge,
    queues,
    runs,
    schedules,
    serve,
    traces,
    webhooks,
    workers,
)
from .report import exit_code_of, fail

app = typer.Typer(
    name="outlast",
    help="Background jobs that outlast the process that runs them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help, and half a second less to wait for it
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(database.migrate, name="migrate", help="Bring the database schema up or down.")
for command in (runs.watch, runs.logs, runs.fork, runs.release, edits.run_now, edits.delete, edits.duplicate):
    jobs.jobs.command()(command)
jobs.jobs.command("set")(edits.change)
app.add_typer(jobs.jobs, name="jobs", help="Enqueue jobs, read and follow them, and act on one or on many of them.")
app.add_typer(bulk.bulk, name="bulk", help="Follow and stop what is being done to many jobs at once.")
app.add_typer(audit.audit, name="audit", help="See what operators did to what, and why.")
app.add_typer(keys.keys, name="keys", help="Make, list, rotate and revoke the keys of the HTTP API.")
app.add_typer(webhooks.webhooks, name="webhooks", help="Say who is told when jobs end, see what was told, tell again.")
app.add_typer(events.events, name="events", help="Emit events for runs that wait for them, and list them.")
app.add_typer(drain.drain, name="drain", help="Let the process on this machine leave, or see how far it is.")
app.add_typer(workers.workers, name="workers", help="List workers, and let one leave.")
app.add_typer(limits.limits, name="limits", help="See and set limits, see who holds slots, and take them back.")
app.add_typer(outbox.outbox, name="outbox", help="See what is staged and not published, and replay what was refused.")
jobs.jobs.command("explain")(explain.explain)
jobs.jobs.command("move")(move.move)
app.add_typer(queues.queues, name="queues", help="See how full queues are, pause, resume and limit them.")
jobs.jobs.command("traces")(traces.traces)
jobs.jobs.command("check")(traces.check)
app.add_typer(schedules.schedules, name="schedules", help="See what is due when, and pause, resume or fire schedules.")
app.command("health")(doctor.health)
app.command("doctor")(doctor.doctor)
app.add_typer(purge.dead, name="dead", help="List dead letters, retry them, and delete old ones.")
app.command("purge")(purge.purge)
app.command("dev")(dev.dev)
app.command("api")(serve.api)
app.command("worker")(serve.worker)
app.command("relay")(serve.relay)
app.command("scheduler")(serve.scheduler)
app.command("run")(serve.run)


@app.command()
def version(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the version."""
    import platform

    from .. import __version__

    if as_json:
        import json

        print(json.dumps({"version": __version__, "python": platform.python_version()}))
    else:
        print(f"outlast {__version__} (Python {platform.python_version()})")


@app.command()
def openapi(
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Compare with --path instead of printing; 1 if they differ.")
    ] = False,
    path: Annotated[str, typer.Option(help="The committed document.")] = "openapi/openapi.json",
) -> None:
    """Print the OpenAPI document of the HTTP API, or check the committed one."""
    from ..bootstrap import openapi_document

    document = openapi_document()
    if not check:
        sys.stdout.write(document)
        return
    committed = Path(path)
    if not committed.is_file() or committed.read_text() != document:
        fail(f"{path} is not what this code serves", fix="run `make openapi` and commit the result")
        raise typer.Exit(1)
    typer.echo(f"{path} is in step", err=True)


def main() -> None:
    """Run the command line; every `OutlastError` becomes two lines and an exit code."""
    # Modules of OUTLAST_JOBS lie where the command is called, also when it is an installed script.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        app(prog_name="outlast")
    except OutlastError as error:
        fail(f"{error.code}: {error.cause}", fix=error.fix)
        sys.exit(exit_code_of(error))
    except KeyboardInterrupt:
        sys.exit(130)
