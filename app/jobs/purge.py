"""`purge`: tables of the application that workers keep in bounds, declared where job types are."""

from __future__ import annotations

from datetime import timedelta

from ..domain.retention import TableRule


def purge(table: str, *, older_than: timedelta, column: str = "created_at") -> TableRule:
    """Let workers delete rows of a table `older_than` after the time in `column`.

    Assign it to a name in a module of job types. The table is in the database that holds the jobs, and may name its
    schema: `audit.visits`. Times without a zone are taken for UTC. Rows go in small transactions of their own; the
    table's triggers and foreign keys apply.

    Raises:
        SettingsInvalid: a name cannot be one, or the duration cannot work.
    """
    return TableRule(table=table, older_than=older_than, column=column)
