"""The journal of a service: its event stream in SQLite, and what people ask about later.

What the tables mean stands in :mod:`scheduler.replay.journal_reader`, which reads them. Whatever is
noted in one turn of the service's loop becomes one transaction, at its end and before anybody hears
of it (`commit`). If a submission is among it, the transaction is synced to the disk (`durable`), so
that many submissions that come together cost one sync; everything else survives the death of the
service at once, and that of the machine up to the last few seconds.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from reshape.errors import ReshapeError
from reshape.wire.messages import Submission
from scheduler.model.events import Event
from scheduler.model.orders import Order
from scheduler.replay.journal_reader import FORMAT, ROUTINE, Facts, Records

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
CREATE INDEX IF NOT EXISTS events_of_job ON events (job) WHERE kind NOT IN {ROUTINE};
CREATE INDEX IF NOT EXISTS orders_of_job ON orders (job);
CREATE INDEX IF NOT EXISTS changes_of_job ON orders (job) WHERE kind NOT IN {ROUTINE};
CREATE INDEX IF NOT EXISTS phases_of_job ON phases (job);
INSERT OR IGNORE INTO meta VALUES ('format', '{FORMAT}');
"""
_EVENT = "INSERT INTO events (batch, job, kind, event) VALUES (?, ?, ?, ?)"
_ORDER = 'INSERT INTO orders (batch, job, kind, at, "order") VALUES (?, ?, ?, ?, ?)'
_JOB = "INSERT INTO jobs VALUES (?, ?, ?)"
_PHASE = "INSERT INTO phases (job, serial, at, phase, detail) VALUES (?, ?, ?, ?, ?)"
_FACTS = "INSERT OR REPLACE INTO facts VALUES (?, ?)"
_SETTINGS = "INSERT OR REPLACE INTO settings VALUES (?, ?)"

json = msgspec.json.Encoder()


class Journal(Records):
    """The journal in one file. Only one service writes it (the directory's lock sees to that).

    Raises
    ------
    ReshapeError : the file is no journal, or one of another format.
    """

    def __init__(self, path: Path) -> None:
        self._pending: dict[str, list[Sequence[object]]] = {}
        self._durable = self._syncs = False
        try:
            db = sqlite3.connect(path, isolation_level=None)
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            db.executescript(_SCHEMA)
        except sqlite3.DatabaseError as error:
            raise ReshapeError(
                f"{path} is not a readable journal ({error}): move it away to start afresh"
            ) from None
        super().__init__(db, path)
        (last,) = db.execute("SELECT max(batch) FROM events").fetchone()
        self.batch: int = last or 0

    def close(self) -> None:
        """Close the file, all of it written."""
        self.commit()
        self._db.close()

    def sync(self) -> None:
        """Write what is noted, so that it is found by whoever asks."""
        self.commit()

    def commit(self) -> None:
        """Write what was noted since the last time as one transaction."""
        if not self._pending:
            return
        if self._syncs != self._durable:
            self._db.execute(f"PRAGMA synchronous={'FULL' if self._durable else 'NORMAL'}")
            self._syncs = self._durable
        self._db.execute("BEGIN")
        try:
            for statement, rows in self._pending.items():
                self._db.executemany(statement, rows)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._db.rollback()
            raise ReshapeError(f"{self._path} cannot be written: {error}") from None
        self._pending.clear()
        self._durable = False

    def record(
        self, events: Sequence[Event], orders: Iterable[Order], *, durable: bool = False
    ) -> None:
        """Note the events of one instant as the next batch, and what the core decided on them."""
        self.batch += 1
        self._durable |= durable
        for event in events:
            job = getattr(event, "job", None)
            self._note(_EVENT, self.batch, job, type(event).__name__, json.encode(event))
        at = events[-1].at
        for order in orders:
            job = getattr(order, "job", None)
            self._note(_ORDER, self.batch, job, type(order).__name__, at, json.encode(order))

    def add_job(self, job: int, token: str, submission: Submission) -> None:
        """Note how a job is started; durable together with its JobSubmitted."""
        self._note(_JOB, job, token, json.encode(submission))

    def add_phase(self, job: int, serial: int, at: float, phase: str, detail: str = "") -> None:
        """Note a step of a resize."""
        self._note(_PHASE, job, serial, at, phase, detail)

    def add_facts(self, job: int, facts: Facts) -> None:
        """Add what a program reports of itself; a name said again replaces the value."""
        known = self.facts(job)
        known.update(facts)
        self._note(_FACTS, job, json.encode(known))

    def add_settings(self, settings: bytes) -> None:
        """Note the settings (JSON) that decisions follow from the next batch on."""
        self._note(_SETTINGS, self.batch + 1, settings)

    def _note(self, statement: str, *row: object) -> None:
        self._pending.setdefault(statement, []).append(row)
