"""Checks of the doctor's own surroundings: the modules it would run, the time it is given, the ports it would take."""

from __future__ import annotations

from .finding import Check, Examined, Finding, Level, ok, skip


def _modules(examined: Examined) -> Finding:
    found = examined.surroundings.modules
    if found is None:
        return skip("run `outlast doctor` where workers run: a service that is asked imports no handlers")
    if found.error is not None:
        return Finding(
            level=Level.FAIL,
            text=found.error.cause,
            facts={"modules": list(found.modules), "code": found.error.code},
            fix=found.error.fix,
        )
    if not found.modules:
        return skip("OUTLAST_JOBS names no module here; workers need one")
    return ok(
        f"{len(found.modules)} modules import and declare {found.declared} job types",
        modules=list(found.modules),
        job_types=found.declared,
    )


def _grace(examined: Examined) -> Finding:
    drain, grace = examined.surroundings.drain, examined.surroundings.grace
    least = drain + examined.limits.grace_margin
    facts = {"drain_seconds": drain.total_seconds(), "least_seconds": least.total_seconds()}
    if grace is None:
        return skip(
            "OUTLAST_GRACE_SECONDS is not set: say there how long your platform waits between SIGTERM and SIGKILL"
            f" (terminationGracePeriodSeconds without preStop, stop_grace_period);"
            f" {least.total_seconds():g} s are needed"
        )
    facts["grace_seconds"] = grace.total_seconds()
    if grace >= least:
        return ok(f"{grace.total_seconds():g} s until SIGKILL, {least.total_seconds():g} s are needed", **facts)
    shorter = grace - examined.limits.grace_margin
    return Finding(
        level=Level.FAIL,
        text=f"SIGKILL comes after {grace.total_seconds():g} s, and a drain of {drain.total_seconds():g} s needs"
        f" {least.total_seconds():g} s: deploys will look like crashes",
        facts=facts,
        fix="give the process more time (and preStop on top), or let it drain in less",
        commands=(
            (f"OUTLAST_DRAIN_SECONDS={shorter.total_seconds():g}",)
            if shorter.total_seconds() > 0
            else (f"OUTLAST_GRACE_SECONDS={least.total_seconds():g}",)
        ),
    )


def _ports(examined: Examined) -> Finding:
    ports = examined.surroundings.ports
    if ports is None:
        return skip("run `outlast doctor` on the machine itself")
    taken = [port for port in ports if port.taken_by is not None and not port.is_ours]
    if not taken:
        said = ", ".join(f"{port.address} {'answers as ours' if port.is_ours else 'is free'}" for port in ports)
        return ok(said, ports=[port.address for port in ports])
    return Finding(
        level=Level.FAIL,
        text="; ".join(f"{port.address} ({port.variable}) cannot be listened on: {port.taken_by}" for port in taken),
        facts={"ports": [port.address for port in taken]},
        fix="end what listens there, or choose another port",
        commands=tuple(
            f"{port.variable}={port.address.rpartition(':')[0]}:{port.free_port}" for port in taken if port.free_port
        ),
    )


PROCESS_CHECKS = (
    Check(code="modules", title="Modules of jobs import", when="one of OUTLAST_JOBS does not", judge=_modules),
    Check(
        code="grace",
        title="A drain has the time it needs",
        when="OUTLAST_GRACE_SECONDS is less than OUTLAST_DRAIN_SECONDS + 10",
        judge=_grace,
    ),
    Check(code="ports", title="Ports are free or ours", when="something else listens there", judge=_ports),
)
