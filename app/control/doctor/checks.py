"""Every check of the doctor, in the order it reports them: what hinders the rest comes first."""

from __future__ import annotations

from .finding import Check
from .process_checks import PROCESS_CHECKS
from .server_checks import SERVER_CHECKS
from .store_checks import STORE_CHECKS
from .wall_checks import WALL_CHECKS
from .work_checks import WORK_CHECKS

CHECKS: tuple[Check, ...] = (*STORE_CHECKS, *SERVER_CHECKS, *WALL_CHECKS, *WORK_CHECKS, *PROCESS_CHECKS)
