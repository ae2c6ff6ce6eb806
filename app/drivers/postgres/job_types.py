"""`publish_job_types` and `job_types`: what workers say they can run, for processes that do not load handlers.

The newest publication of a name stands; of its limits, the newest code version's do. Rows are written in the order of
their names, so that two workers starting at once do not lock each other out.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...domain.snapshot import JobTypeDoc
from .database import Database, Raw
from .limit_rules import check_enforced
from .limit_versions import declare, open_declared
from .names import name_ids
from .pinned import pinned_name
from .run_locks import looking

_PUBLISH = """
insert into outlast.job_type as t (name, code_version, document)
select name, code_version, document from unnest($1::text[], $2::text[], $3::text[]) as d(name, code_version, document)
order by name
on conflict (name) do update set code_version = excluded.code_version, document = excluded.document,
  published_at = excluded.published_at"""

_JOB_TYPES = 'select name, code_version, document, published_at from outlast.job_type order by name collate "C"'


async def publish_job_types(db: Database, types: Sequence[JobTypeDoc]) -> None:
    """Show the job types a worker serves. Repeating it is safe; of one name twice, the last stands.

    Raises:
        LimitUnenforceable: nothing is shown, because limits that are declared would hold nobody.
    """
    docs = {doc.name: doc for doc in types}.values()
    columns = ([d.name for d in docs], [d.code_version for d in docs], [d.document for d in docs])
    if docs:
        await check_enforced(db, list(docs))

        async def once(conn: Raw) -> set[str]:
            async with looking(conn):
                await conn.execute(db.in_schema(_PUBLISH), *columns)
                return await declare(db, conn, list(docs))

        await open_declared(db, list(docs), changed=await db.run(once))
        # What is handed back to this version is found by names of its own.
        await name_ids(db, (pinned_name(doc.name, doc.code_version) for doc in docs))


async def job_types(db: Database) -> tuple[JobTypeDoc, ...]:
    """Give every published job type, by name in code-point order."""
    rows = await db.run(lambda conn: conn.fetch(db.in_schema(_JOB_TYPES)))
    return tuple(
        JobTypeDoc(
            name=row["name"],
            code_version=row["code_version"],
            document=row["document"],
            published_at=row["published_at"],
        )
        for row in rows
    )
