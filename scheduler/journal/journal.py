"""The journal of a service: its events and orders in SQLite, and what people ask about later.

:mod:`scheduler.journal.journal_reader`, which reads the tables, describes them. Everything noted in
one turn of the service's loop becomes one transaction at the end of the turn (`commit`), in the
order in which it was noted, before any message of the turn is sent. A transaction that holds a
submission is synced to the disk (`durable`), so that many submissions of one turn cost one sync.
Other transactions survive the death of the service at once, and that of the machine except for the
last few seconds. A mark beside the journal tells whether a part of it is missing
(:mod:`scheduler.journal.opening`).
"""

from __future__ import annotations

import errno
import logging
import sqlite3
from collections.abc import Collection, Sequence
from math import isfinite
from pathlib import Path
from typing import TypeAlias

import msgspec

from reshape.errors import ReshapeError
from reshape.files.durable_files import DRAFT, sync_folder
from scheduler.journal.clock import ClockAnchor, noted_ahead_s
from scheduler.journal.journal_format import (
    IDENTITY,
    RECORD,
    SEQUENCE,
    SITE,
    SIZES,
    SIZES_TOGETHER,
    SUBMISSION,
    SUMMARY,
    KeptSubmission,
    encode_event,
    encode_order,
    seal,
)
from scheduler.journal.journal_reader import JournalReader, ReportedFacts
from scheduler.journal.opening import (
    HighWaterMark,
    JournalFullError,
    free_bytes,
    lacks_room,
    open_journal,
    write_copy,
)
from scheduler.model.events import Event, JobEvent, ResizePoint
from scheduler.model.job import Job
from scheduler.model.orders import Continue, JobOrder, Order
from scheduler.partition.resizing import POLICY_ERROR
from scheduler.state.records import CoreRecord, encode_core, encode_job, encode_sizes

_EVENT = "INSERT INTO events (batch, job, kind, event) VALUES (?, ?, ?, ?)"
_ORDER = 'INSERT INTO orders (batch, job, kind, at, "order") VALUES (?, ?, ?, ?, ?)'
_JOB = "INSERT INTO jobs VALUES (?, ?, ?)"
_PHASE = "INSERT INTO phases (job, serial, at, phase, detail) VALUES (?, ?, ?, ?, ?)"
# An update in place leaves the indices whose columns keep their values as they are.
_META = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value=excluded.value"
_RECORD = (
    "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (job) DO UPDATE SET"
    " state=excluded.state, user=excluded.user, name=excluded.name,"
    " submitted_at=excluded.submitted_at, ended_at=excluded.ended_at, batch=excluded.batch,"
    " record=excluded.record"
)
_POOL = "INSERT INTO pools VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET record=excluded.record"
_POOLS = "SELECT name, record FROM pools ORDER BY rowid"
_SUMMARY = "INSERT OR REPLACE INTO summaries VALUES (?, ?)"
_SIZES = "INSERT OR REPLACE INTO sizes VALUES (?, ?, ?)"
_REPLACE_SUBMISSION = "UPDATE jobs SET submission=? WHERE job=?"

#: Free space below which submissions are refused.
RESERVE_BYTES = 1 << 20
#: Bytes of the parts of a job that have room beside many others in the reserve.
_SMALL_BYTES = 1 << 14

log = logging.getLogger(__name__)

#: Statements in the order in which they were noted; equal neighbours are one entry with their rows.
Statements: TypeAlias = list[tuple[str, list[Sequence[object]]]]
json = msgspec.json.Encoder()


class Journal(JournalReader):
    """The journal in one file, for its owner alone (mode 0600).

    Only one service writes it; the lock of the service directory ensures that.

    Parameters
    ----------
    accept_loss : open a journal that ends before its mark, too.

    Raises
    ------
    ReshapeError : see `scheduler.journal.opening.open_journal`.
    """

    def __init__(self, path: Path, *, accept_loss: bool = False) -> None:
        self._pending: Statements = []
        self._executed: Statements = []  # in the open transaction
        self._durable = self._syncs = False
        self._has_room = False  # as `check_room` found in this turn
        self._site_noted = b""
        self._sizes_noted: dict[int, int] = {}  # job -> changes of its size in rows of their own
        self._mark = HighWaterMark(path)
        super().__init__(open_journal(path, self._mark, accept_loss=accept_loss), path)
        self._files = self._present_files()
        self.batch = self.last_batch()
        self._ahead_s = noted_ahead_s(self)
        self._last_job = self.last_job()
        self._identity = self.meta(IDENTITY) or ""
        self._sequence = self.sequence()
        self._synced = self._sequence if self._mark.mark is None else self._mark.mark.synced
        self._write_mark()

    def close(self) -> None:
        """Close the file, all of it written; what a full disk has no room for is lost."""
        try:
            self.commit()
        except JournalFullError as error:
            log.error("%s: the last turn is lost, of which no message was sent", error)
        self._db.close()
        self._mark.close()

    def restore_files(self) -> bool:
        """Write the journal to its path again if a file of it was removed; call it after `commit`.

        SQLite would go on with files that have no names, and all would be lost at the end.

        Returns
        -------
        whether it was written again: this object has to be discarded, and the file opened again.

        Raises
        ------
        OSError, sqlite3.Error : it cannot be written.
        """
        present = self._present_files()
        if present == self._files:
            return False
        path, *logs = present
        copy = path.with_name(f"{path.name}{DRAFT}")
        copy.unlink(missing_ok=True)  # of a process that died
        try:
            write_copy(self._db, copy)
        except (OSError, sqlite3.Error):
            copy.unlink(missing_ok=True)
            raise
        for log_file in logs:
            log_file.unlink(missing_ok=True)
        copy.replace(path)
        sync_folder(path.parent)
        self._files = self._present_files()
        return True

    def _present_files(self) -> dict[Path, tuple[int, int] | None]:
        """Device and inode of the files of the journal; None: a file does not exist.

        A reader creates the write-ahead log again if that was removed, but as another file.
        """
        path = self.path.resolve()  # SQLite has its logs there if the journal is a link
        ((mode,),) = self._db.execute("PRAGMA journal_mode")
        parts = ("-wal", "-shm") if mode == "wal" else ()
        found: dict[Path, tuple[int, int] | None] = {}
        for file in (path, *(path.with_name(path.name + part) for part in parts)):
            try:
                status = file.stat()
            except FileNotFoundError:
                found[file] = None
            else:
                found[file] = status.st_dev, status.st_ino
        return found

    def discard(self) -> None:
        """Forget what was noted since the last commit."""
        self._db.rollback()
        self._pending, self._executed, self._durable = [], [], False
        self._sizes_noted.clear()

    def sync(self) -> None:
        """Execute what is noted in the transaction of this turn, so that queries find it."""
        if not self._pending:
            return
        try:
            self._execute()
        except sqlite3.Error as error:
            raise self._write_error(error) from None

    def commit(self) -> None:
        """Write what was noted since the last time as one transaction.

        Raises
        ------
        JournalFullError : the disk is full. Nothing is lost: the next call tries it again.
        ReshapeError : the file cannot be written for another reason.
        """
        self._has_room = False
        if self._pending or self._executed:
            self._commit()
        self._write_mark()

    def _commit(self) -> None:
        """Write what is pending and executed as the next transaction."""
        try:
            if self._syncs != self._durable:
                self._take_back()  # the setting cannot be changed within a transaction
            self._execute()
            self._db.execute(_META, (SEQUENCE, str(self._sequence + 1)))
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._write_error(error) from None
        self._sequence += 1
        if self._durable:
            self._synced = self._sequence
        self._executed, self._durable = [], False

    def _write_mark(self) -> None:
        """Write down how far the journal is written, before any message depends on it."""
        try:
            self._mark.note(self._identity, self._sequence, self._synced, self._last_job)
        except OSError as error:
            text = f"{self._mark.path} cannot be written: {error.strerror}"
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise (JournalFullError(text) if full else ReshapeError(text)) from None

    def _execute(self) -> None:
        """Execute the pending statements in a transaction that stays open."""
        if not self._db.in_transaction:
            if self._syncs != self._durable:
                self._db.execute(f"PRAGMA synchronous={'FULL' if self._durable else 'NORMAL'}")
                self._syncs = self._durable
            self._db.execute("BEGIN")
        pending, self._pending = self._pending, []
        self._executed += pending
        for statement, rows in pending:
            self._db.executemany(statement, rows)

    def _take_back(self) -> None:
        """Roll the open transaction back; its statements are pending again."""
        self._db.rollback()
        self._pending = self._executed + self._pending
        self._executed = []

    def _write_error(self, error: sqlite3.Error) -> ReshapeError:
        self._take_back()
        text = f"{self.path} cannot be written: {error}"
        full = error.sqlite_errorcode == sqlite3.SQLITE_FULL or lacks_room(self.path)
        return JournalFullError(text) if full else ReshapeError(text)

    def record(
        self, events: Sequence[Event], orders: Sequence[Order], *, durable: bool = False
    ) -> None:
        """Note the events of one instant as the next batch, and what the core decided on them.

        Raises
        ------
        ValueError : a number in an event is not finite; nothing is noted then.
        """
        events = _with_failures(events, orders)
        encoded = [encode_event(event) for event in events]
        self.batch += 1
        self._durable |= durable
        for event, blob in zip(events, encoded, strict=True):
            job = event.job if isinstance(event, JobEvent) else None
            self.write(_EVENT, self.batch, job, type(event).__name__, blob)
        at = events[-1].at
        for order in orders:
            job = order.job if isinstance(order, JobOrder) else None
            self.write(_ORDER, self.batch, job, type(order).__name__, at, encode_order(order))

    def add_job(self, job: int, token: str, submission: KeptSubmission) -> None:
        """Note how a job is started; durable together with its JobSubmitted."""
        self.write(_JOB, job, token, _sealed_submission(job, token, submission))
        self._last_job = max(self._last_job, job)

    def parts(self) -> set[str]:
        """Return the digests of the parts that the journal has."""
        return {str(digest) for (digest,) in self.rows("SELECT digest FROM scripts")}

    def part(self, digest: str) -> bytes | None:
        """Return a part of submissions; None if the journal does not have it."""
        row = next(self.rows("SELECT text FROM scripts WHERE digest=?", digest), None)
        return None if row is None else bytes(row[0])

    def add_key(self, job: int, user: str, key: str) -> None:
        """Note the submission key of a job; durable together with its JobSubmitted."""
        self.write("INSERT INTO keys VALUES (?, ?, ?)", job, user, key)

    def job_of_key(self, user: str, key: str) -> int | None:
        """Return the job that a user submitted with a key; None if there is none."""
        row = next(self.rows("SELECT job FROM keys WHERE user=? AND key=?", user, key), None)
        return None if row is None else int(row[0])

    def keys_of(self, user: str) -> list[tuple[int, str]]:
        """Return the jobs that were submitted with a key under a user's name, with their keys."""
        self.sync()
        query = "SELECT job, key FROM keys WHERE user=? ORDER BY job"
        return [(int(job), str(key)) for job, key in self.rows(query, user)]

    def add_phase(self, job: int, serial: int, at: float, phase: str, detail: str = "") -> None:
        """Note a step of a resize."""
        self.write(_PHASE, job, serial, at, phase, detail)

    def add_facts(self, job: int, facts: ReportedFacts) -> None:
        """Add what a program reports of itself; a name that is repeated replaces the value.

        Raises
        ------
        ReshapeError : a value is not a finite number.
        """
        for name, value in facts.items():
            if isinstance(value, float) and not isfinite(value):
                raise ReshapeError(f"the fact {name} must be a finite number, got {value}")
        all_facts = self.facts(job)
        all_facts.update(facts)
        self.write("INSERT OR REPLACE INTO facts VALUES (?, ?)", job, json.encode(all_facts))

    def note_memory(self, job: int, mib: int) -> None:
        """Note the largest memory of a job, MiB."""
        self.write("INSERT OR REPLACE INTO memory VALUES (?, ?)", job, mib)

    def add_settings(self, settings: bytes) -> None:
        """Note the settings (JSON) that decisions follow from the next batch on."""
        self.write("INSERT OR REPLACE INTO settings VALUES (?, ?)", self.batch + 1, settings)

    def check_room(self, size: int = 0) -> None:
        """Check that there is room for further jobs; it looks at the disk once in a turn.

        Parameters
        ----------
        size : bytes of the parts of a job; if they are many, it looks at the disk for the job.

        Raises
        ------
        JournalFullError : the disk is almost full.
        """
        if self._has_room and size < _SMALL_BYTES:
            return
        free = free_bytes(self.path)
        if free < RESERVE_BYTES + 2 * size:  # SQLite writes a part twice
            raise JournalFullError(
                f"the disk of {self.path} is full ({free:.0f} bytes are free): no job is accepted"
                " until there is room"
            )
        self._has_room = True

    def note_job(self, job: Job) -> None:
        """Note the present state of a job, which recovery starts from.

        The times in the columns, by which people search, are those of the wall clock.
        """
        spec = job.spec
        submitted_at = job.submitted_at + self._ahead_s
        ended_at = None if job.ended_at is None else job.ended_at + self._ahead_s
        row = (job.id, job.state.name, spec.user, spec.name, submitted_at, ended_at)
        earlier = self._note_sizes(job) if len(job.sizes) >= SIZES_TOGETHER else 0
        record = seal(RECORD.format(job.id), encode_job(job, earlier))
        self.write(_RECORD, *row, self.batch, record)

    def _note_sizes(self, job: Job) -> int:
        """Note the earlier changes of a job's size, each once; return how many they are.

        The record of an ended job, which is written once, has all of them.
        """
        noted = self._sizes_noted.pop(job.id, 0)
        if job.ended_at is not None:
            self.write("DELETE FROM sizes WHERE job=?", job.id)
            return 0
        while len(job.sizes) - noted >= SIZES_TOGETHER:
            sizes = encode_sizes(job.sizes[noted : noted + SIZES_TOGETHER])
            self.write(_SIZES, job.id, noted, seal(SIZES.format(job.id, noted), sizes))
            noted += SIZES_TOGETHER
        self._sizes_noted[job.id] = noted
        return noted

    def forget_unreadable_jobs(self, readable: Collection[int]) -> None:
        """Remove the records of jobs that have not ended and are not among the readable ones."""
        for (job,) in list(self.rows("SELECT job FROM records WHERE ended_at IS NULL")):
            if job not in readable:
                self.write("DELETE FROM records WHERE job=?", job)

    def note_summary(self, job: int, summary: bytes) -> None:
        """Note the description of an ended job."""
        self.write(_SUMMARY, job, seal(SUMMARY.format(job), summary))

    def replace_submission(self, job: int, token: str, submission: KeptSubmission) -> None:
        """Replace a submission, for example by one without its environment."""
        self.write(_REPLACE_SUBMISSION, _sealed_submission(job, token, submission), job)

    def note_core(self, record: CoreRecord) -> None:
        """Note the scheduler state apart from the jobs, unless it is what was noted last."""
        blob = encode_core(record)
        if blob != self._site_noted:
            self._site_noted = blob
            self.write("INSERT OR REPLACE INTO site VALUES (1, ?)", seal(SITE, blob))

    def note_clock_anchor(self, anchor: ClockAnchor) -> None:
        """Note the anchor of the clock."""
        self._ahead_s = anchor.ahead_s
        self.write(_META, "clock", json.encode(anchor).decode())

    def pools(self) -> list[tuple[str, bytes]]:
        """Return name and record of each elastic pool, in the order in which they were added."""
        return [(str(name), bytes(record)) for name, record in self.rows(_POOLS)]

    def note_pool(self, name: str, record: bytes) -> None:
        """Note the state of an elastic pool."""
        self.write(_POOL, name, record)

    def remove_pool(self, name: str) -> None:
        """Remove an elastic pool."""
        self.write("DELETE FROM pools WHERE name=?", name)

    def note_meta(self, key: str, value: str) -> None:
        """Note a value of the table `meta`."""
        self.write(_META, key, value)

    def write(self, statement: str, *row: object) -> None:
        """Note a statement, which is executed with the rest of the turn."""
        if self._pending and self._pending[-1][0] == statement:
            self._pending[-1][1].append(row)
        else:
            self._pending.append((statement, [row]))


def _sealed_submission(job: int, token: str, submission: KeptSubmission) -> bytes:
    return seal(SUBMISSION.format(job, token), json.encode(submission))


def _with_failures(events: Sequence[Event], orders: Sequence[Order]) -> Sequence[Event]:
    """Return the events of an instant with the failures of policies, which a replay takes over."""
    failed = {
        order.job: str(order.reason.facts.get("failed", ""))
        for order in orders
        if isinstance(order, Continue) and order.reason.rule == POLICY_ERROR
    }
    if not failed:
        return events
    return [
        msgspec.structs.replace(event, failed=failed[event.job])
        if isinstance(event, ResizePoint) and event.job in failed
        else event
        for event in events
    ]
