"""What the journal of a service holds, for reading: events, orders, submissions, phases of resizes.

`events` is the truth. Handed to the core batch by batch it gives the same state and the same orders
again, so a restart is a replay. The other tables hold what the core does not need: how to start a
job, orders (for `explain` and for comparing a replay), the phases of resizes, what programs report.
The service writes it (:mod:`scheduler.service.record.journal`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from reshape.errors import ReshapeError
from reshape.wire.messages import Submission
from scheduler.model.events import Event
from scheduler.model.orders import Order

FORMAT = 1
#: What a job does most, and what few questions are about; set apart, so that others stay quick.
ROUTINE = "('ResizePoint', 'Continue')"

Facts: TypeAlias = dict[str, bool | int | float | str]
_event = msgspec.json.Decoder(Event)
_order = msgspec.json.Decoder(Order)
_facts = msgspec.json.Decoder(Facts)
_submission = msgspec.json.Decoder(Submission)


class DamagedJournalError(ReshapeError):
    """A part of a journal cannot be read; a reader may be content with what came before it."""


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


class Records:
    """The tables of an open journal.

    Raises
    ------
    ReshapeError : the file is no journal, or one of another format.
    """

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db, self._path = db, path
        with self._readable():
            row = db.execute("SELECT value FROM meta WHERE key='format'").fetchone()
        found = row[0] if row else "none"
        if found != str(FORMAT):
            raise ReshapeError(
                f"{path} has journal format {found}, this release reads {FORMAT}: "
                "use the release that wrote it"
            )

    def sync(self) -> None:
        """Make what was written visible to the questions below; nothing to do for a reader."""

    def batches(self) -> Iterator[Batch]:
        """Give all batches in order.

        Raises
        ------
        DamagedJournalError : when it comes to a part that cannot be read.
        """
        settings = self.settings()
        with self._readable():
            events = groupby(
                self._rows("SELECT batch, event FROM events ORDER BY seq"), key=lambda row: row[0]
            )
            orders = self._rows('SELECT batch, "order" FROM orders ORDER BY seq')
            order = next(orders, None)
            for batch, rows in events:
                decided = []
                while order is not None and order[0] <= batch:
                    decided.append(order[1])
                    order = next(orders, None)
                happened = [_event.decode(blob) for _, blob in rows]
                yield Batch(batch, settings.get(batch), happened, decided)

    def salvaged(self) -> tuple[list[Batch], str]:
        """Give all batches that can be read, and why there are no more; empty if that is all."""
        batches: list[Batch] = []
        try:
            for batch in self.batches():
                batches.append(batch)
        except DamagedJournalError as error:
            return batches, str(error)
        return batches, ""

    def settings(self) -> dict[int, bytes]:
        """Give the settings (JSON) by the first batch they were decided by."""
        with self._readable():
            return dict(self._rows("SELECT batch, settings FROM settings ORDER BY batch"))

    def jobs(self) -> Iterator[tuple[int, str, Submission]]:
        """Give number, token and submission of every job."""
        with self._readable():
            for job, token, blob in self._rows("SELECT job, token, submission FROM jobs"):
                yield job, token, _submission.decode(blob)

    def events_of(self, job: int) -> list[Event]:
        """Give the events of one job, oldest first, its resize points excepted."""
        rows = self._rows(
            f"SELECT event FROM events WHERE job=? AND kind NOT IN {ROUTINE} ORDER BY seq", job
        )
        return [_event.decode(blob) for (blob,) in rows]

    def orders_of(self, job: int, *, routine: bool = False) -> list[tuple[float, Order]]:
        """Give (time, order) of one job, oldest first; with `routine` also those to go on."""
        kinds = "" if routine else f"AND kind NOT IN {ROUTINE}"
        rows = self._rows(f'SELECT at, "order" FROM orders WHERE job=? {kinds} ORDER BY seq', job)
        return [(at, _order.decode(blob)) for at, blob in rows]

    def phases_of(self, job: int) -> list[Phase]:
        """Give the steps of all resizes of one job, oldest first."""
        rows = self._rows(
            "SELECT at, serial, phase, detail FROM phases WHERE job=? ORDER BY seq", job
        )
        return [Phase(*row) for row in rows]

    def facts(self, job: int) -> Facts:
        """Give what a program reported of itself."""
        row = next(self._rows("SELECT facts FROM facts WHERE job=?", job), None)
        return _facts.decode(row[0]) if row else {}

    def _rows(self, query: str, *values: object) -> Iterator[Any]:
        self.sync()
        return self._db.execute(query, values)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, msgspec.DecodeError) as error:
            raise DamagedJournalError(
                f"{self._path} is not a readable journal ({error}): it is damaged, or no journal"
            ) from None


@contextmanager
def reading(path: Path) -> Iterator[Records]:
    """Open a journal for reading alone, also that of a running service.

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
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        db.execute("PRAGMA writable_schema=ON")  # SQLite's way to open a file that was cut off
    except sqlite3.Error as error:
        raise ReshapeError(f"{path} cannot be opened: {error}") from None
    with closing(db):
        yield Records(db, path)
