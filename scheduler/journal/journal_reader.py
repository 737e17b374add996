"""What the journal of a service holds, for reading: events, orders, submissions, phases of resizes.

The tables `records` and `site` hold the state of every job and of the scheduler after the last
instant; recovery starts from them. The tables `events` and `orders` hold what happened and what was
decided: handed to a core batch by batch, the events give the same state and orders again as long as
the code that decides is the same, which is what a replay examines. The other tables hold how to
start a job, the phases of resizes, and what programs report. The service writes the journal
(:mod:`scheduler.journal.journal`).
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from math import inf
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from reshape.errors import ReshapeError
from scheduler.journal.journal_format import (
    FORMAT,
    LAST_JOB,
    MEASURED,
    RECORD,
    REMOVED,
    ROUTINE,
    SEQUENCE,
    SITE,
    SIZES,
    SUBMISSION,
    KeptSubmission,
    Launch,
    event_decoder,
    order_decoder,
    unseal,
)
from scheduler.model.events import Event, ResizePoint
from scheduler.model.job import Job
from scheduler.model.orders import Order
from scheduler.model.procset import ProcSet
from scheduler.state.records import CoreRecord, decode_core, decode_job
from scheduler.text.formats import format_moment

log = logging.getLogger(__name__)

#: Orders of one job that `orders_of` returns at most, the latest.
ORDERS_LIMIT = 10_000
#: Unreadable records that are listed; further ones are counted in the log alone.
_LISTED = 20

ReportedFacts: TypeAlias = dict[str, bool | int | float | str]
_facts = msgspec.json.Decoder(dict[str, bool | int | float | str | None])
_submission = msgspec.json.Decoder(KeptSubmission)


class DamagedJournalError(ReshapeError):
    """A part of a journal cannot be read; a reader may use what comes before it.

    Attributes
    ----------
    why : what is wrong with it.
    """

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is not a readable journal ({why}): it is damaged, or no journal")
        self.why = why


@dataclass(frozen=True)
class Phase:
    """One step of a resize transaction, such as "ready" or "committed"."""

    at: float
    serial: int
    phase: str
    detail: str


@dataclass(frozen=True)
class Batch:
    """The events of one instant and what was decided on them.

    Parameters
    ----------
    settings : the settings (JSON) that decisions follow from this batch on, if they changed.
    orders : orders as they were written (JSON), to be compared byte by byte.
    """

    number: int
    settings: bytes | None
    events: list[Event]
    orders: list[bytes]


class JournalReader:
    """The tables of an open journal.

    Attributes
    ----------
    unreadable : records that were left out because they cannot be read, a sentence on each.

    Raises
    ------
    ReshapeError : the journal is of another format.
    """

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db, self.path = db, path
        self.unreadable: list[str] = []
        row = db.execute("SELECT value FROM meta WHERE key='format'").fetchone()
        version = row[0] if row else "none"
        if version != str(FORMAT):
            raise ReshapeError(
                f"{path} has journal format {version}, and this release reads format {FORMAT}: use"
                " the release that wrote it"
            )

    def sync(self) -> None:
        """Make what was written visible to the queries below; nothing to do for a reader."""

    def report_unreadable(self, what: str, error: Exception) -> None:
        """Note a record that is left out because it cannot be read, and log it."""
        text = f"{what} was left out: {error}"
        log.error("journal record unreadable: %s", text)
        if text not in self.unreadable and len(self.unreadable) < _LISTED:
            self.unreadable.append(text)

    def batches(self) -> Iterator[Batch]:
        """Yield all batches in order.

        Raises
        ------
        DamagedJournalError : when it comes to a part that cannot be read.
        ReshapeError : retention has removed a part of the journal.
        """
        self._check_complete()
        settings = self.settings()
        with readable(self.path):
            events = groupby(
                self.rows("SELECT batch, event FROM events ORDER BY seq"),
                key=lambda row: row[0],
            )
            orders = self.rows('SELECT batch, "order" FROM orders ORDER BY seq')
            order = next(orders, None)
            for batch, rows in events:
                decided = []
                while order is not None and order[0] <= batch:
                    decided.append(order[1])
                    order = next(orders, None)
                happened = [event_decoder.decode(blob) for _, blob in rows]
                yield Batch(batch, settings.get(batch), happened, decided)

    def _check_complete(self) -> None:
        removed = self.meta(REMOVED)
        if removed is None:
            return
        rows = self.rows("SELECT at FROM orders WHERE batch<=? ORDER BY seq DESC LIMIT 1", removed)
        moment = "".join(f" ({format_moment(at)})" for (at,) in rows)
        raise ReshapeError(
            f"{self.path} cannot be replayed, since a replay needs all events: the service has"
            f" removed resize points or whole jobs up to batch {removed}{moment}; the setting"
            " journal.keep_resize_points is the number of latest events of which it keeps them"
        )

    def readable_batches(self) -> tuple[list[Batch], str]:
        """Return all batches that can be read, and why there are no more; empty if that is all.

        Raises
        ------
        DamagedJournalError : none can be read.
        """
        batches: list[Batch] = []
        try:
            for batch in self.batches():
                batches.append(batch)
        except DamagedJournalError as error:
            if not batches:
                raise
            return batches, str(error)
        return batches, ""

    def settings(self) -> dict[int, bytes]:
        """Return the settings (JSON) by the first batch they were decided by."""
        return dict(self.rows("SELECT batch, settings FROM settings ORDER BY batch"))

    def launches(self, numbers: Iterable[int] | None = None) -> dict[int, Launch]:
        """Return how the given jobs, or all, are started, as far as the journal has them.

        A submission that cannot be read is replaced by one whose program fails at once, so that the
        job can still be watched, ended and listed.
        """
        found: dict[int, Launch] = {}
        if numbers is None:
            numbers = [row[0] for row in self.rows("SELECT job FROM jobs ORDER BY job")]
        for job in numbers:
            for token, blob in self.rows("SELECT token, submission FROM jobs WHERE job=?", job):
                try:
                    submission = _submission.decode(unseal(SUBMISSION.format(job, token), blob))
                except (msgspec.DecodeError, ValueError) as error:
                    self.report_unreadable(f"the submission of job {job}", error)
                    submission = lost_submission()
                found[job] = Launch(submission, token)
        return found

    def launch_of(self, number: int) -> Launch | None:
        """Return how a job is started; None if the journal does not have it."""
        return self.launches([number]).get(number)

    def core_record(self) -> CoreRecord | None:
        """Return the recorded scheduler state; None if the journal is new.

        Raises
        ------
        DamagedJournalError : it cannot be read, or is missing.
        """
        with readable(self.path):
            row = next(self.rows("SELECT record FROM site"), None)
            if row is not None:
                return decode_core(unseal(SITE, row[0]))
            if next(self.rows("SELECT 1 FROM records LIMIT 1"), None) is not None:
                raise DamagedJournalError(self.path, "it has jobs and no state of the scheduler")
            return None

    def nodes(self) -> dict[str, ProcSet]:
        """Return the processors of each node that the machine has had."""
        recorded, nodes = self.core_record(), dict[str, ProcSet]()
        for part in recorded.partitions if recorded else ():
            for node in part.nodes:
                nodes[node.name] = nodes.get(node.name, ProcSet()) | node.processors
        return nodes

    def _sizes(self, number: int) -> Iterator[bytes]:
        query = "SELECT place, sizes FROM sizes WHERE job=? ORDER BY place"
        for place, sizes in self.rows(query, number):
            yield unseal(SIZES.format(number, place), sizes)

    def recorded_jobs(
        self, where: str = "ended_at IS NULL ORDER BY job", *values: object
    ) -> list[Job]:
        """Return jobs as they were recorded last; those that cannot be read are reported.

        Parameters
        ----------
        where : which, and in which order (SQL); by default those that have not ended.
        """
        jobs = []
        query = f"SELECT job, record FROM records WHERE {where}"
        for number, record in list(self.rows(query, *values)):
            try:
                plain = unseal(RECORD.format(number), record)
                jobs.append(decode_job(plain, partial(self._sizes, number)))
            except msgspec.DecodeError as error:
                self.report_unreadable(f"the record of job {number}", error)
        return jobs

    def recorded_job(self, number: int) -> Job | None:
        """Return a job as it was recorded last, None if there is no record that can be read."""
        return next(iter(self.recorded_jobs("job=?", number)), None)

    def last_job(self) -> int:
        """Return the number of the job that was submitted last, 0 if there was none."""
        (last,) = next(self.rows("SELECT max(job) FROM jobs"))
        return max(last or 0, int(self.meta(LAST_JOB) or 0))

    def sequence(self) -> int:
        """Return the number of the last transaction, 0 if there was none."""
        return int(self.meta(SEQUENCE) or 0)

    def last_batch(self) -> int:
        """Return the number of the latest batch, 0 if there is none."""
        latest = next(self.rows("SELECT batch FROM events ORDER BY seq DESC LIMIT 1"), None)
        return 0 if latest is None else int(latest[0])

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """Let all queries see the journal as of one moment; for readers, not for the service.

        Raises
        ------
        DamagedJournalError : what is asked for cannot be read.
        """
        with readable(self.path):
            self._db.execute("BEGIN")
            try:
                yield
            finally:
                self._db.rollback()

    def points_after_records(self) -> list[ResizePoint]:
        """Return the resize points that came after the record of their job, oldest first."""
        last = dict(
            self.rows("SELECT job, batch FROM records WHERE ended_at IS NULL AND state!='PENDING'")
        )
        if not last:
            return []
        begin = "SELECT seq FROM events WHERE batch<=? ORDER BY seq DESC LIMIT 1"
        rows = self.rows(
            "SELECT batch, event FROM events WHERE kind='ResizePoint'"
            f" AND seq>ifnull(({begin}), 0) ORDER BY seq",
            max(min(last.values()), int(self.meta(MEASURED) or 0)),
        )
        return [
            event
            for batch, event in self._decoded("a resize point", rows, event_decoder)
            if isinstance(event, ResizePoint) and batch > last.get(event.job, batch)
        ]

    def latest_event_at(self) -> float:
        """Return the time of the latest event, -inf if there is none."""
        rows = self.rows("SELECT event FROM events ORDER BY seq DESC LIMIT 1")
        times = [event.at for (event,) in self._decoded("the latest event", rows, event_decoder)]
        return float(times[0]) if times else -inf

    def events_of(self, job: int) -> list[Event]:
        """Return the events of one job, oldest first, its resize points excepted."""
        query = f"SELECT event FROM events WHERE job=? AND kind NOT IN {ROUTINE} ORDER BY seq"
        rows = self._decoded(f"an event of job {job}", self.rows(query, job), event_decoder)
        return [event for (event,) in rows]

    def orders_of(self, job: int, *, routine: bool = False) -> list[tuple[float, Order]]:
        """Return (time, order) of one job, oldest first; with `routine` also `Continue`.

        Of more than `ORDERS_LIMIT` orders the latest are returned.
        """
        kinds = "" if routine else f"AND kind NOT IN {ROUTINE}"
        query = f'SELECT at, "order" FROM orders WHERE job=? {kinds} ORDER BY seq DESC LIMIT ?'
        rows = self.rows(query, job, ORDERS_LIMIT)
        return [*self._decoded(f"an order of job {job}", rows, order_decoder)][::-1]

    def phases_of(self, job: int) -> list[Phase]:
        """Return the steps of all resizes of one job, oldest first."""
        rows = self.rows(
            "SELECT at, serial, phase, detail FROM phases WHERE job=? ORDER BY seq", job
        )
        return [Phase(*row) for row in rows]

    def facts(self, job: int) -> ReportedFacts:
        """Return what a program reported of itself."""
        rows = self.rows("SELECT facts FROM facts WHERE job=?", job)
        for (facts,) in self._decoded(f"the facts of job {job}", rows, _facts):
            return {name: value for name, value in facts.items() if value is not None}
        return {}

    def max_memory_mib(self, job: int) -> int:
        """Return the largest memory of a job, MiB; 0 if it was not measured."""
        row = next(self.rows("SELECT mib FROM memory WHERE job=?", job), None)
        return 0 if row is None else int(row[0])

    def checkpoint_of(self, job: int) -> int:
        """Return the iteration of the last checkpoint that a job has reported, 0 if none."""
        iteration = self.facts(job).get("checkpoint_iteration", 0)
        return iteration if isinstance(iteration, int) else 0

    def _decoded(
        self, name: str, rows: Iterable[Any], decoder: msgspec.json.Decoder[Any]
    ) -> Iterator[Any]:
        """Decode the last column of rows; those that cannot be read are reported and left out."""
        for *others, blob in rows:
            try:
                yield (*others, decoder.decode(blob))
            except (msgspec.DecodeError, ValueError) as error:
                self.report_unreadable(name, error)

    def meta(self, key: str) -> str | None:
        """Return a value of the table `meta`, None if there is none."""
        row = next(self.rows("SELECT value FROM meta WHERE key=?", key), None)
        return None if row is None else str(row[0])

    def rows(self, query: str, *values: object) -> Iterator[Any]:
        """Return the rows of a query."""
        self.sync()
        return self._db.execute(query, values)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Make an error of SQLite or of decoding one of the journal.

    Raises
    ------
    DamagedJournalError : there was one.
    """
    try:
        yield
    except (sqlite3.DatabaseError, msgspec.DecodeError) as error:
        raise DamagedJournalError(path, str(error)) from None


def lost_submission() -> KeptSubmission:
    """Build the submission of a job whose own cannot be read: a program that fails at once."""
    return KeptSubmission(argv=["false"], processors=1, walltime_s=1.0)


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Open the file of a journal read-only.

    SQLite creates files beside a database that others may write to. In a read-only folder, such as
    a snapshot, it cannot, so the file is opened as immutable. A journal to which a service writes
    has its write-ahead log beside it, and is never opened so.
    """
    is_still = not (os.access(path.parent, os.W_OK) or path.with_name(f"{path.name}-wal").exists())
    uri = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if is_still else ''}"
    return sqlite3.connect(uri, uri=True)


@contextmanager
def reading(path: Path) -> Iterator[JournalReader]:
    """Open a journal read-only, also that of a running service.

    Parameters
    ----------
    path : the file, or the directory of the service.

    Raises
    ------
    ReshapeError : there is none, it is damaged, or it is of another format.
    """
    path = path / "journal.db" if path.is_dir() else path
    if not path.is_file():
        raise ReshapeError(
            f"there is no journal {path}: name the file, or the directory of a service"
        )
    try:
        db = connect_to_read(path)
        db.execute("PRAGMA writable_schema=ON")  # SQLite's way to open a file that was cut off
    except sqlite3.Error as error:
        raise ReshapeError(f"{path} cannot be opened: {error}") from None
    with closing(db):
        try:
            yield JournalReader(db, path)
        except sqlite3.DatabaseError as error:
            raise DamagedJournalError(path, str(error)) from None
