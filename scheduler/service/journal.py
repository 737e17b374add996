"""The journal of a service: its event stream in SQLite, and what people ask about later.

`events` is the truth. Handed to the core batch by batch it gives the same state and the same orders
again, so a restart is a replay. The other tables hold what the core does not need: how to start a
job, orders (for `explain` and for comparing a replay), the phases of resizes, what programs report.

A batch is one transaction. A submission is synced to the disk before it is acknowledged
(`durable`); everything else survives the death of the service at once, and that of the machine up
to the last few seconds.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import msgspec

from reshape.errors import ReshapeError
from reshape.messages import Submission
from scheduler.core.events import Event
from scheduler.core.orders import Order

FORMAT = 1
#: What a job does most, and what few questions are about; set apart, so that others stay quick.
_ROUTINE = "('ResizePoint', 'Continue')"
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS settings (batch INTEGER PRIMARY KEY, settings BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (job INTEGER PRIMARY KEY, token TEXT NOT NULL,
                                 submission BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS events (seq INTEGER PRIMARY KEY, batch INTEGER NOT NULL,
                                   job INTEGER, kind TEXT NOT NULL, event BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS orders (seq INTEGER PRIMARY KEY, batch INTEGER NOT NULL,
                                   job INTEGER, kind TEXT NOT NULL, at REAL NOT NULL,
                                   "order" BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS phases (seq INTEGER PRIMARY KEY, job INTEGER NOT NULL,
                                   serial INTEGER NOT NULL, at REAL NOT NULL,
                                   phase TEXT NOT NULL, detail TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS facts (job INTEGER PRIMARY KEY, facts BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS events_of_job ON events (job) WHERE kind NOT IN {_ROUTINE};
CREATE INDEX IF NOT EXISTS orders_of_job ON orders (job);
CREATE INDEX IF NOT EXISTS changes_of_job ON orders (job) WHERE kind NOT IN {_ROUTINE};
CREATE INDEX IF NOT EXISTS phases_of_job ON phases (job);
"""

_json = msgspec.json.Encoder()
_event = msgspec.json.Decoder(Event)
_order = msgspec.json.Decoder(Order)
Facts = dict[str, bool | int | float | str]
_facts = msgspec.json.Decoder(Facts)
_submission = msgspec.json.Decoder(Submission)


@dataclass(frozen=True)
class Phase:
    """One step of a resize transaction, such as "ready" or "committed"."""

    at: float
    serial: int
    phase: str
    detail: str


class Journal:
    """The journal in one file. Only one service writes it (the directory's lock sees to that).

    Raises
    ------
    ReshapeError : the file is no journal, or one of another format.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.executescript(_SCHEMA)
            row = self._db.execute("SELECT value FROM meta WHERE key='format'").fetchone()
        except sqlite3.DatabaseError as error:
            raise ReshapeError(
                f"{path} is not a readable journal ({error}): move it away to start afresh"
            ) from None
        if row is None:
            self._db.execute("INSERT INTO meta VALUES ('format', ?)", (str(FORMAT),))
        elif row[0] != str(FORMAT):
            raise ReshapeError(f"{path} has journal format {row[0]}, this release reads {FORMAT}")
        (last,) = self._db.execute("SELECT max(batch) FROM events").fetchone()
        self.batch: int = last or 0

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    # ------------------------------------------------------------------ writing

    def record(self, events: Sequence[Event], *, durable: bool = False) -> None:
        """Write the events of one instant as the next batch, before they are handled."""
        self.batch += 1
        with self._transaction(durable):
            self._db.executemany(
                "INSERT INTO events (batch, job, kind, event) VALUES (?, ?, ?, ?)",
                [
                    (
                        self.batch,
                        getattr(event, "job", None),
                        type(event).__name__,
                        _json.encode(event),
                    )
                    for event in events
                ],
            )

    def record_orders(self, at: float, orders: Iterable[Order]) -> None:
        """Write what the core decided on the present batch."""
        rows = [
            (
                self.batch,
                getattr(order, "job", None),
                type(order).__name__,
                at,
                _json.encode(order),
            )
            for order in orders
        ]
        with self._transaction():
            self._db.executemany(
                'INSERT INTO orders (batch, job, kind, at, "order") VALUES (?, ?, ?, ?, ?)', rows
            )

    def add_job(self, job: int, token: str, submission: Submission) -> None:
        """Write how a job is started; durable together with its JobSubmitted."""
        self._db.execute(
            "INSERT INTO jobs VALUES (?, ?, ?)", (job, token, _json.encode(submission))
        )

    def add_phase(self, job: int, serial: int, at: float, phase: str, detail: str = "") -> None:
        """Write a step of a resize."""
        self._db.execute(
            "INSERT INTO phases (job, serial, at, phase, detail) VALUES (?, ?, ?, ?, ?)",
            (job, serial, at, phase, detail),
        )

    def add_facts(self, job: int, facts: Facts) -> None:
        """Add what a program reports of itself; a name said again replaces the value."""
        known = self.facts(job)
        known.update(facts)
        self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (job, _json.encode(known)))

    def add_settings(self, settings: bytes) -> None:
        """Note the settings (JSON) that decisions follow from the next batch on."""
        self._db.execute(
            "INSERT OR REPLACE INTO settings VALUES (?, ?)", (self.batch + 1, settings)
        )

    def _transaction(self, durable: bool = False) -> _Transaction:
        return _Transaction(self._db, durable)

    # ------------------------------------------------------------------ reading

    def batches(self) -> Iterator[tuple[int, list[Event]]]:
        """Give all batches in order."""
        rows = self._db.execute("SELECT batch, event FROM events ORDER BY seq")
        for batch, group in groupby(rows, key=lambda row: row[0]):
            yield batch, [_event.decode(event) for _, event in group]

    def settings(self) -> dict[int, bytes]:
        """Give the settings (JSON) by the first batch they were decided by."""
        return dict(self._db.execute("SELECT batch, settings FROM settings ORDER BY batch"))

    def jobs(self) -> Iterator[tuple[int, str, Submission]]:
        """Give number, token and submission of every job."""
        for job, token, blob in self._db.execute("SELECT job, token, submission FROM jobs"):
            yield job, token, _submission.decode(blob)

    def events_of(self, job: int) -> list[Event]:
        """Give the events of one job, oldest first, its resize points excepted."""
        rows = self._db.execute(
            f"SELECT event FROM events WHERE job=? AND kind NOT IN {_ROUTINE} ORDER BY seq", (job,)
        )
        return [_event.decode(blob) for (blob,) in rows]

    def orders_of(self, job: int, *, routine: bool = False) -> list[tuple[float, Order]]:
        """Give (time, order) of one job, oldest first; with `routine` also those to go on."""
        kinds = "" if routine else f"AND kind NOT IN {_ROUTINE}"
        rows = self._db.execute(
            f'SELECT at, "order" FROM orders WHERE job=? {kinds} ORDER BY seq', (job,)
        )
        return [(at, _order.decode(blob)) for at, blob in rows]

    def phases_of(self, job: int) -> list[Phase]:
        """Give the steps of all resizes of one job, oldest first."""
        rows = self._db.execute(
            "SELECT at, serial, phase, detail FROM phases WHERE job=? ORDER BY seq", (job,)
        )
        return [Phase(*row) for row in rows]

    def facts(self, job: int) -> Facts:
        """Give what a program reported of itself."""
        row = self._db.execute("SELECT facts FROM facts WHERE job=?", (job,)).fetchone()
        return _facts.decode(row[0]) if row else {}


class _Transaction:
    """One transaction, synced to the disk at its end if durable."""

    def __init__(self, db: sqlite3.Connection, durable: bool) -> None:
        self._db, self._durable = db, durable

    def __enter__(self) -> None:
        self._db.execute(f"PRAGMA synchronous={'FULL' if self._durable else 'NORMAL'}")
        self._db.execute("BEGIN")

    def __exit__(self, kind: object, *_: object) -> None:
        self._db.execute("COMMIT" if kind is None else "ROLLBACK")
