"""The commands `reshape journal`: show, check, copy, export, compact, and cancel jobs."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from math import inf
from pathlib import Path
from typing import Any

import click
import msgspec

from reshape.cli.options import WholeRange, example
from reshape.errors import ReshapeError
from scheduler.client.options import MOMENT, echo_json, json_option
from scheduler.config.settings import JournalConfig
from scheduler.journal.descriptions import decode_summary
from scheduler.journal.journal import Journal
from scheduler.journal.journal_format import REMOVED, SUMMARY, unseal
from scheduler.journal.journal_reader import reading
from scheduler.journal.opening import HighWaterMark, back_up, missing_from
from scheduler.journal.recovery import request_cancellations
from scheduler.journal.retention import Retention, prune
from scheduler.model.events import JobSubmitted
from scheduler.node.directory import ServiceDirectory
from scheduler.text.formats import counted, format_moment
from scheduler.text.tables import Table, labelled, render

#: Tables of a journal, in the order in which `info` lists them.
TABLES = ("records", "summaries", "jobs", "events", "orders", "phases", "facts", "settings")

directory_argument = click.argument(
    "directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path)
)


@click.group()
def journal() -> None:
    """Show, check, copy, export and compact the journal of a service, and cancel its jobs.

    DIR is the directory of the service. 'cancel' and 'compact' need a service that has ended. A
    running service removes by itself the data that its setting 'journal' does not keep.
    """


@journal.command()
@json_option
@directory_argument
@example("reshape journal info ~/.reshape")
def info(directory: Path, as_json: bool) -> None:
    """Show format, size, rows and times of a journal."""
    facts, rows = _facts(directory)
    if as_json:
        echo_json(facts | {"rows": rows})
        return
    texts: dict[str, object] = {}
    for name, value in facts.items():
        if name.endswith("_at"):
            value = format_moment(value)
        if isinstance(value, dict):
            value = ", ".join(f"{user} {count}" for user, count in value.items()) or 0
        texts[name.replace("_", " ")] = "-" if value is None else value
    table = Table(["TABLE", "ROWS"], [(name, str(count)) for name, count in rows.items()])
    click.echo(f"{labelled(texts)}\n\n{render(table)}")


def _facts(directory: Path) -> tuple[dict[str, Any], dict[str, int]]:
    path = directory / "journal.db"
    with reading(directory) as reader:

        def first(query: str) -> Any:
            return next(reader.rows(query))[0]

        rows = {name: first(f"SELECT count(*) FROM {name}") for name in TABLES}
        page, free = first("PRAGMA page_size"), first("PRAGMA freelist_count")
        ended = "FROM records WHERE ended_at IS NOT NULL"
        first_end, last_end = next(reader.rows(f"SELECT min(ended_at), max(ended_at) {ended}"))
        removed = reader.meta(REMOVED)
        facts = {
            "format": reader.meta("format"),
            "bytes": _bytes(directory),
            "free_bytes": page * free,
            "jobs_not_ended": dict(
                reader.rows(
                    "SELECT user, count(*) FROM records WHERE ended_at IS NULL GROUP BY user"
                )
            ),
            "ended_jobs": first(f"SELECT count(*) {ended}"),
            "first_end_at": first_end,
            "last_end_at": last_end,
            "incomplete_up_to_batch": None if removed is None else int(removed),
        }
    return {"path": str(path)} | facts, rows


@journal.command()
@click.option(
    "--keep-resize-points",
    type=WholeRange(min=0),
    default=200_000,
    show_default=True,
    help="Number of latest events whose resize points are kept.",
)
@click.option("--before", type=MOMENT, help="Also remove the jobs that ended before this time.")
@directory_argument
@example(
    "reshape journal compact ~/.reshape", "reshape journal compact --before 2026-01-01 ~/.reshape"
)
def compact(directory: Path, keep_resize_points: int, before: float | None) -> None:
    """Remove old resize points, and release free space to the file system.

    With --before, remove ended jobs, too, with all that the journal holds of them; their numbers
    are not reused.
    """
    count = 0
    with _alone(directory) as opened:
        size = _bytes(directory)
        while before is not None and (removed := prune(opened, before, 1000)):
            opened.commit()
            count += removed
        Retention(opened, JournalConfig(keep_resize_points=keep_resize_points)).finish()
    with closing(sqlite3.connect(directory / "journal.db", isolation_level=None)) as db:
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    removed_jobs = "" if before is None else f", removed {counted(count, 'job')}"
    click.echo(f"{directory}: {_mib(size)}, now {_mib(_bytes(directory))}{removed_jobs}")


@journal.command()
@click.option("--user", help="Cancel all jobs of this user that have not ended.")
@directory_argument
@click.argument("jobs", type=WholeRange(min=1), nargs=-1, metavar="[JOB]...")
@example("reshape journal cancel ~/.reshape 17 18")
def cancel(directory: Path, jobs: tuple[int, ...], user: str | None) -> None:
    """Cancel jobs of a service that does not run, which ends them as soon as it starts.

    A service that runs takes 'reshape cancel'.
    """
    if not jobs and user is None:
        raise click.UsageError("no job is named: give numbers of jobs, or --user")
    by = ServiceDirectory(directory).owner
    with _alone(directory) as opened:
        why = f"cancelled by {by} while the service did not run"
        asked = request_cancellations(opened, jobs, user, why)
    text = f"{counted(len(asked), 'job')} will be cancelled when the service starts"
    click.echo(f"{directory}: {text}: {', '.join(map(str, asked))}")


@journal.command()
@directory_argument
@example("reshape journal export ~/.reshape > journal.jsonl")
def export(directory: Path) -> None:
    """Print a journal as JSON lines: jobs that have ended, then all its events and orders."""
    encode = msgspec.json.Encoder().encode
    with reading(directory) as reader:
        for job, summary in reader.rows("SELECT job, summary FROM summaries ORDER BY job"):
            described = decode_summary(unseal(SUMMARY.format(job), summary))
            _print_line(encode({"job": described}))
        for name in ("event", "order"):
            rows = reader.rows(f'SELECT batch, kind, "{name}" FROM {name}s ORDER BY seq')
            for batch, kind, blob in rows:
                if kind == JobSubmitted.__name__:
                    blob = _with_all_fields(blob)
                _print_line(encode({"batch": batch, "kind": kind, name: msgspec.Raw(blob)}))


@journal.command()
@directory_argument
@example("reshape journal check ~/.reshape")
def check(directory: Path) -> None:
    """Check that a journal, or a copy, is complete and undamaged; the service may run.

    A large journal takes about a minute for each million jobs. A service checks its journal when it
    starts, too, for at most half a second.
    """
    path = directory / "journal.db"
    mark = HighWaterMark(path)  # before the journal, which may grow
    missing, _ = missing_from(path, mark, inf)
    if missing:
        raise ReshapeError(f"the journal {path} lacks {missing}")
    unmarked = "" if mark.mark else ", as far as can be told without journal.mark"
    click.echo(f"{path}: complete and undamaged{unmarked}")


@journal.command()
@directory_argument
@click.argument("copy", type=click.Path(path_type=Path))
@example("reshape journal backup ~/.reshape /backup/reshape-2026-11-23")
def backup(directory: Path, copy: Path) -> None:
    """Copy the journal, keys and names of a service to the new folder COPY; the service may run.

    COPY is as private as the directory, and is a service directory itself; see docs/backup.md.
    """
    last = back_up(directory, copy)
    click.echo(f"{copy}: complete and undamaged, up to job {last}")


def _with_all_fields(blob: bytes) -> bytes:
    """Add the fields of a request that the journal leaves out because they have their defaults."""
    try:
        spec = msgspec.json.decode(blob, type=JobSubmitted).spec
    except msgspec.DecodeError:  # damaged
        return blob
    event = msgspec.json.decode(blob)
    return msgspec.json.encode({**event, "spec": msgspec.structs.asdict(spec)})


def _print_line(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")


@contextmanager
def _alone(directory: Path) -> Iterator[Journal]:
    """Open the journal of a service that does not run."""
    service = ServiceDirectory(directory)
    if not service.journal.is_file():
        raise ReshapeError(f"there is no journal in {directory}: name the directory of a service")
    with service.lock() as free:
        if not free:
            raise ReshapeError(
                f"a service runs in {directory}: end it with 'reshape stop --dir {directory}', or"
                " with SIGTERM if its jobs have to continue"
            )
        opened = Journal(service.journal)
        try:
            yield opened
        finally:
            opened.close()


def _bytes(directory: Path) -> int:
    return sum(part.stat().st_size for part in directory.glob("journal.db*"))


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
