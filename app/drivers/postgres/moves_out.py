"""`take`, `left`, `close_moves`: ready and delayed jobs leave a database in one statement, each as one row of `moving`.

A job in that row is in no bucket and has no envelope: nothing here can claim, change, expire or count it. Its key stays
taken until it has arrived. What another transaction has locked is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from ...domain.audit import AuditEntry
from ...domain.errors import JobStateConflict
from ...domain.job import JobId
from ...domain.moving import Bucket, Moving, Stays, Taken
from ...domain.outbox import SOURCE_KEPT
from ...domain.webhook import CARRIER
from .audit import keep
from .database import Database, Raw, Row
from .keys import END_KEYS
from .rows import plain
from .run_locks import looking

# The target forgets after `SOURCE_KEPT` that a move has come; the clocks of the two may differ by so much.
DELIVERED_WITHIN = SOURCE_KEPT - timedelta(days=1)

IDENTITY = "select (select system_identifier from pg_control_system())::text || '/' || current_database()"

# Numbers are drawn one by one, none ahead, so that whatever comes later has a greater one.
_NEWEST = "select coalesce(pg_sequence_last_value('outlast.token_seq'::regclass), 0)"

# In two parts, as the name of the schema is put in the place of what reads like ours.
_CARRIER = f"'outlast' || '{CARRIER.removeprefix('outlast')}'"
_CARRIED = "t.ctid, t.job_id, t.name_id, t.queue, t.rank, t.attempt, t.claim_no, t.crashes, t.interrupts"


class _Place(NamedTuple):
    """A bucket as a statement reads it: its columns, its order, and where it begins; `$2` is the queue, if any.

    `bound` keeps what is numbered since the move began out: what it gave back comes behind its cursor else. Where jobs
    go back to the place they were at, none is needed.
    """

    columns: str
    order: str
    types: str
    start: tuple[object, ...]
    bound: str = ""

    def first(self, queue: str | None) -> tuple[object, ...]:
        """Give the place before the first row."""
        return (queue or "", *self.start[1:]) if self.start[0] == "" else self.start


_NIL = UUID(int=0)
_PLACES = {
    Bucket.READY: _Place(
        f"{_CARRIED}, t.since, null::timestamptz as due_at, null::smallint as reason, t.seq",
        "t.queue, t.rank, t.seq",
        "$4::text, $5::smallint, $6::bigint",
        ("", -32_768, -1),
        "and t.seq <= $7::bigint",
    ),
    Bucket.GATE: _Place(
        f"{_CARRIED}, t.since, null::timestamptz as due_at, null::smallint as reason",
        "t.job_id",
        "$4::uuid",
        (_NIL,),
        "and t.seq <= $5::bigint",  # made fair meanwhile, a queue's ready jobs come here with their numbers
    ),
    Bucket.WAITING: _Place(
        f"{_CARRIED}, null::timestamptz as since, t.due_at, t.reason",
        "t.due_at, t.job_id",
        "$4::timestamptz, $5::uuid",
        (datetime(1970, 1, 1, tzinfo=UTC), _NIL),
    ),
}


def _rows(name: str, table: str, by: str, order: str) -> str:
    """Give two parts: the rows of one table that belong to the jobs are deleted, and gathered by job."""
    return f"""
{name} as (delete from outlast.{table} where {by} = any(array(select {by} from j)) returning *),
{name}s as (select {by}, json_agg(row_to_json({name}) order by {order}) as doc from {name} group by {by})"""  # noqa: S608  our own fragments


_TAKE = f"""
with t as materialized (
  select {{columns}} from outlast.{{table}} t
  where ($2::text is null or t.queue = $2) and ({{order}}) > ({{types}}) {{bound}}
  order by {{order}} limit $3 for update skip locked),
s as materialized (
  select t.*, row_number() over (order by {{order}}) as ord, case
    when (select true from outlast.slot x where x.job_id = t.job_id limit 1) then '{Stays.SLOTS}'
    when (select true from outlast.handed x where x.job_id = t.job_id) then '{Stays.HANDED}'
    when (select true from outlast.wait x where x.job_id = t.job_id limit 1) then '{Stays.WAITS}'
    when (select true from outlast.wait x where x.child_id = t.job_id limit 1) then '{Stays.CALLED}'
    when t.name_id = (select n.id from outlast.job_name n where n.name = {_CARRIER}) then '{Stays.CARRIES}'
    end as stays
  from t),
g as materialized (select * from s where stays is null),
d as (delete from outlast.{{table}} where ctid = any(array(select ctid from g))),
e as (delete from outlast.job where id = any(array(select job_id from g)) returning *),
j as materialized (
  select e.id as job_id, coalesce(e.run_id, e.id) as run_id, e.key_hash, e.name_id, row_to_json(e) as doc,
    case when e.callback is not null then (
      select json_build_object('label', w.label, 'url', w.url) from outlast.webhook w
      where w.id = e.callback::json ->> 'to' and w.tenant = e.tenant) end as webhook
  from e),
{_rows("st", "step", "run_id", "st.seq").strip()},
{_rows("att", "attempt", "job_id", "att.number").strip()},
{_rows("lin", "run_line", "job_id", "lin.seq").strip()},
{_rows("pro", "progress", "job_id", "pro.at").strip()},
{_rows("exp", "expiry", "job_id", "exp.kind").strip()},
m as (
  insert into outlast.moving(job_id, target, name, key_hash, document)
  select g.job_id, $1, n.name, j.key_hash, json_build_object(
    'job', j.doc, 'token', row_to_json(g), 'webhook', j.webhook,
    'key_expires_at', (select k.expires_at from outlast.live_key k where k.hash = j.key_hash and k.job_id = j.job_id),
    'steps', coalesce(sts.doc, '[]'), 'attempts', coalesce(atts.doc, '[]'), 'lines', coalesce(lins.doc, '[]'),
    'progress', coalesce(pros.doc, '[]'), 'expiries', coalesce(exps.doc, '[]'))::text
  from g join j on j.job_id = g.job_id
  cross join lateral (select n.name from outlast.job_name n where n.id = j.name_id offset 0) n
  left join sts on sts.run_id = j.run_id
  left join atts on atts.job_id = g.job_id
  left join lins on lins.job_id = g.job_id
  left join pros on pros.job_id = g.job_id
  left join exps on exps.job_id = g.job_id
  order by g.ord returning job_id)
select s.*, (select count(*) from m) as taken from s order by s.ord"""  # noqa: S608  our own

_LEFT = """
select id, job_id, name, document, taken_at < outlast.clock() - $3::interval as is_late
from outlast.moving where target = $1 order by seq limit $2"""
_ON_THE_WAY = "select target, count(*) as n from outlast.moving group by target"

CLOSE = f"""
with m as materialized (delete from outlast.moving where id = any($1::uuid[]) returning id, job_id, key_hash),
ended as materialized (select job_id, key_hash from m),
{END_KEYS.strip()}
select id from m"""  # noqa: S608  fragments of our own


def _statement(bucket: Bucket) -> str:
    place = _PLACES[bucket]
    sql = _TAKE.replace("{columns}", place.columns).replace("{table}", bucket.value).replace("{bound}", place.bound)
    # In the second part the rows are those of the first, under the same name.
    return sql.replace("{order}", place.order).replace("{types}", place.types)


_STATEMENTS = {bucket: _statement(bucket) for bucket in Bucket}


async def identity(db: Database) -> str:
    """Give the server's own number, the database and the schema."""
    found = await db.run(lambda conn: conn.fetchval(IDENTITY))
    return f"{found}/{db.schema}"


async def newest(db: Database) -> int:
    """Give the number that was drawn last."""
    return int(await db.run(lambda conn: conn.fetchval(db.in_schema(_NEWEST))))


async def take(
    db: Database,
    bucket: Bucket,
    *,
    target: str,
    queue: str | None,
    after: tuple[object, ...] | None,
    upto: int,
    batch: int,
    audit: AuditEntry | None,
) -> Taken:
    """Take the next jobs of a bucket out."""
    place = _PLACES[bucket]
    binds = (*(place.first(queue) if after is None else after), *((upto,) if place.bound else ()))

    async def once(conn: Raw) -> list[Row]:
        async with looking(conn):
            rows = await conn.fetch(db.in_schema(_STATEMENTS[bucket]), target, queue, batch, *binds)
            if rows and rows[0]["taken"]:
                await keep(db, conn, audit)
        return rows

    rows = await db.run(once)
    stayed: dict[Stays, int] = {}
    for row in rows:
        if row["stays"] is not None:
            stayed[Stays(row["stays"])] = stayed.get(Stays(row["stays"]), 0) + 1
    last = rows[-1] if len(rows) == batch else None
    return Taken(
        taken=rows[0]["taken"] if rows else 0, stayed=stayed, after=None if last is None else _after(bucket, last)
    )


async def left(db: Database, target: str, *, batch: int) -> tuple[Moving, ...]:
    """Give jobs that were taken out for a target."""
    rows = await db.run(lambda conn: conn.fetch(db.in_schema(_LEFT), target, batch, DELIVERED_WITHIN))
    late = [row for row in rows if row["is_late"]]
    if late:
        raise JobStateConflict(
            f"job {late[0]['job_id']} was taken out more than {DELIVERED_WITHIN.days} days ago: whether the target has"
            " had it cannot be known any more",
            fix=f'look for it in the target: if it was there, delete its row from "{db.schema}".moving, else set that'
            " row's taken_at to now(); then move again",
        )
    return tuple(_moving(row) for row in rows)


async def on_the_way(db: Database) -> Mapping[str, int]:
    """Count the jobs on their way by target."""
    rows = await db.run(lambda conn: conn.fetch(db.in_schema(_ON_THE_WAY)))
    return {row["target"]: row["n"] for row in rows}


async def close_moves(db: Database, moves: Sequence[UUID]) -> frozenset[UUID]:
    """Forget jobs that have arrived."""
    rows = await db.run(lambda conn: conn.fetch(db.in_schema(CLOSE), list(moves)))
    return frozenset(plain(row["id"]) for row in rows)


def _after(bucket: Bucket, row: Row) -> tuple[object, ...]:
    columns = {Bucket.READY: ("queue", "rank", "seq"), Bucket.GATE: ("job_id",), Bucket.WAITING: ("due_at", "job_id")}
    return tuple(row[column] for column in columns[bucket])


def _moving(row: Row) -> Moving:
    return Moving(id=plain(row["id"]), job_id=JobId(plain(row["job_id"])), name=row["name"], document=row["document"])
