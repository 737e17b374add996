"""Opening and copying the journal of a service: its tables, and whether it holds all it should.

The high-water mark, in a file beside the journal, says how far that was written. SQLite drops all
that comes after the first damaged part of its log (`journal.db-wal`), and opens an older copy, or
no file at all, without a word. The mark is written after each transaction and before the messages
that depend on it are sent. A journal that ends before its mark has therefore lost something that
was acknowledged, and a service that died between the two has a journal that is ahead of its mark.

The mark itself is never synced: it costs one write of a few bytes into a file that has its final
size. After the death of the machine it may be older than the journal, but also newer than the
transactions that were not synced; so it holds the last synced transaction as well, and the boot of
the machine within which the other numbers hold.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from math import inf
from pathlib import Path

import msgspec

from reshape.errors import ReshapeError
from reshape.files.durable_files import sync_folder, write_durably
from scheduler.journal.clock import boot_id
from scheduler.journal.journal_format import (
    FORMAT,
    IDENTITY,
    LAST_JOB,
    RECORD,
    ROUTINE,
    SEQUENCE,
    SUMMARY,
    unseal,
)
from scheduler.journal.journal_reader import DamagedJournalError, connect_to_read, reading

log = logging.getLogger(__name__)

#: Length of the file in bytes; shorter text is padded, so that each write replaces all of it.
_MARK_BYTES = 256


class Mark(msgspec.Struct, frozen=True):
    """How far a journal was written.

    Attributes
    ----------
    sequence : number of the last transaction.
    synced : number of the last transaction that was synced to the disk.
    job : largest job number.
    journal : identity of the journal.
    boot : identity of the boot of the machine in which the mark was written.
    """

    sequence: int = 0
    synced: int = 0
    job: int = 0
    journal: str = ""
    boot: str = ""


class HighWaterMark:
    """The mark of one journal.

    Parameters
    ----------
    journal : path of the journal; the mark is beside it.

    Attributes
    ----------
    mark : as it is in the file; None if there is no file.

    Raises
    ------
    ReshapeError : the file cannot be read.
    """

    def __init__(self, journal: Path) -> None:
        self.path = journal.with_suffix(".mark")
        self._file = -1
        self._boot = boot_id()
        self.mark = self._read()

    def _read(self) -> Mark | None:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Mark)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise ReshapeError(
                f"{self.path} cannot be read ({error}), so it is not known whether the journal"
                " is complete: restore this file, or remove it if you know that it is"
            ) from None

    def missing(self, identity: str, sequence: int, job: int) -> str:
        """Say what a journal lacks; empty if it has all that its mark requires.

        Parameters
        ----------
        identity, sequence, job : of the journal; its last transaction, and largest job number.
        """
        if self.mark is None:
            return ""
        last = self.mark.sequence if self.mark.boot == self._boot else self.mark.synced
        if identity and identity != self.mark.journal:
            sequence = job = 0  # it is another journal
        if sequence >= last:
            return ""
        text = _numbers("transaction", sequence + 1, last)
        if job < self.mark.job:
            text += f", with the submission of {_numbers('job', job + 1, self.mark.job)}"
        return text

    def note(self, identity: str, sequence: int, synced: int, job: int) -> None:
        """Write the mark, unless it is what was written last.

        Raises
        ------
        OSError : it cannot be written.
        """
        mark = Mark(sequence, synced, job, identity, self._boot)
        if mark == self.mark:
            return
        text = msgspec.json.encode(mark).ljust(_MARK_BYTES - 1) + b"\n"
        if self._file < 0:
            if self.mark is None:
                write_durably(self.path, text)
            self._file = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        os.pwrite(self._file, text, 0)
        self.mark = mark

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _numbers(what: str, first: int, last: int) -> str:
    return f"{what} {last}" if first == last else f"{what}s {first} to {last}"


#: Ended jobs are listed by the time of their end; each index answers filters by its columns alone.
_ENDED_INDICES = "\n".join(
    f"CREATE INDEX IF NOT EXISTS ended_by_{name} ON records ({columns}) WHERE ended_at IS NOT NULL;"
    for name, columns in (
        ("time", "ended_at, user, state, name"),
        ("user", "user, ended_at, state, name"),
        ("state", "state, ended_at, user, name"),
        ("name", "name, ended_at, user, state"),
        ("user_and_state", "user, state, ended_at, name"),
    )
)
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
CREATE TABLE IF NOT EXISTS keys (job INTEGER PRIMARY KEY, user TEXT NOT NULL,
                                 key TEXT NOT NULL, UNIQUE (user, key));
CREATE TABLE IF NOT EXISTS scripts (digest TEXT PRIMARY KEY, text BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS memory (job INTEGER PRIMARY KEY, mib INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS records (job INTEGER PRIMARY KEY, state TEXT NOT NULL,
                                    user TEXT NOT NULL, name TEXT NOT NULL,
                                    submitted_at REAL NOT NULL, ended_at REAL,
                                    batch INTEGER NOT NULL, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS sizes (job INTEGER NOT NULL, place INTEGER NOT NULL,
                                  sizes BLOB NOT NULL, PRIMARY KEY (job, place)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pools (name TEXT PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS site (key INTEGER PRIMARY KEY, record BLOB NOT NULL);
DROP TABLE IF EXISTS sums;
CREATE INDEX IF NOT EXISTS events_of_job ON events (job) WHERE kind NOT IN {ROUTINE};
CREATE INDEX IF NOT EXISTS orders_of_job ON orders (job);
CREATE INDEX IF NOT EXISTS changes_of_job ON orders (job) WHERE kind NOT IN {ROUTINE};
CREATE INDEX IF NOT EXISTS phases_of_job ON phases (job);
CREATE INDEX IF NOT EXISTS records_not_ended ON records (job) WHERE ended_at IS NULL;
CREATE TABLE IF NOT EXISTS summaries (job INTEGER PRIMARY KEY, summary BLOB NOT NULL);
{_ENDED_INDICES}
INSERT OR REPLACE INTO meta VALUES ('format', '{FORMAT}');
"""
_NEW = "INSERT OR IGNORE INTO meta VALUES (?, ?)"

#: Free space with which SQLite can still write.
_PAGE_BYTES = 1 << 16
#: What the records of damaged tables are called, and how many of them a message names.
_NAMES, _LISTED = {"records": "the record of job", "summaries": "the description of job"}, 10
#: Seconds for which a journal is checked when it is opened.
_CHECK_S = 0.5


class JournalFullError(ReshapeError):
    """There is no room on the disk of the journal."""


def open_journal(path: Path, mark: HighWaterMark, *, accept_loss: bool) -> sqlite3.Connection:
    """Open a journal for writing, or create it, for its owner alone.

    Nothing is written to a journal that is refused.

    Parameters
    ----------
    accept_loss : open a journal that ends before its mark, or has damaged records of ended jobs,
        too; the numbers of what is missing are not used again.

    Raises
    ------
    JournalFullError : there is no room on the disk.
    ReshapeError : the file is no journal or one of another format, its structure is damaged, or
        something is missing.
    """
    missing, damaged = missing_from(path, mark, _CHECK_S)
    if missing and not accept_loss:
        raise ReshapeError(
            f"the journal {path} lacks {missing}: restore the latest copy (docs/backup.md), or"
            " continue without the lost part by --accept-loss"
        )
    if accept_loss and not missing:
        log.warning("the journal %s lacks nothing that --accept-loss would be needed for", path)
    _make_private(path)
    try:
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute("PRAGMA cache_spill=OFF")  # a transaction writes to the disk at its end
        db.execute("PRAGMA temp_store=MEMORY")  # so that it needs no further open file
        db.executescript(_SCHEMA)
        db.execute(_NEW, (IDENTITY, secrets.token_hex(8)))
        if missing:
            log.warning("the journal %s goes on without %s, as --accept-loss allows", path, missing)
            _accept(db, mark.mark, damaged)
    except sqlite3.Error as error:
        raise _unusable(path, str(error)) from None
    return db


def missing_from(
    path: Path, mark: HighWaterMark, within_s: float
) -> tuple[str, list[tuple[str, int]]]:
    """Say what a journal lacks, empty if nothing; and name (table, job) of damaged records.

    Parameters
    ----------
    within_s : seconds after which the check of tables and records ends.

    Raises
    ------
    ReshapeError : it cannot be used at all.
    """
    if not path.exists() or path.stat().st_size == 0:
        return mark.missing("", 0, 0), []
    try:
        with reading(path) as reader:
            identity = reader.meta(IDENTITY) or ""
            missing = mark.missing(identity, reader.sequence(), reader.last_job())
        records = _damaged_records(path, within_s)
    except DamagedJournalError as error:
        raise _unusable(path, error.why) from None
    except (sqlite3.Error, ValueError) as error:
        raise _unusable(path, str(error)) from None
    damaged = [f"{_NAMES[table]} {job}" for table, job in records]
    listed = [missing, *damaged[:_LISTED]] if missing else damaged[:_LISTED]
    if len(damaged) > _LISTED:
        listed.append(f"{len(damaged) - _LISTED} further records")
    return " and ".join(listed), records


@contextmanager
def refusing_damage(path: Path) -> Iterator[None]:
    """Make an error that occurs while a journal is read one that says what to do.

    Raises
    ------
    ReshapeError : a part of the journal cannot be read.
    """
    try:
        yield
    except DamagedJournalError as error:
        raise _unusable(path, error.why) from None
    except sqlite3.DatabaseError as error:
        raise _unusable(path, str(error)) from None


def _accept(db: sqlite3.Connection, mark: Mark | None, damaged: list[tuple[str, int]]) -> None:
    """Remove damaged records, and let the journal go on after its mark: no number comes twice."""
    db.execute("PRAGMA synchronous=FULL")
    db.execute("BEGIN")
    for table, job in damaged:
        db.execute(f"DELETE FROM {table} WHERE job=?", (job,))
    for key, number in () if mark is None else ((SEQUENCE, mark.sequence), (LAST_JOB, mark.job)):
        for (noted,) in db.execute("SELECT value FROM meta WHERE key=?", (key,)).fetchall():
            number = max(number, int(noted))
        db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, str(number)))
    db.execute("COMMIT")
    db.execute("PRAGMA synchronous=NORMAL")


def _unusable(path: Path, why: str) -> ReshapeError:
    """Make the error for a journal that cannot be opened."""
    if lacks_room(path):
        return JournalFullError(
            f"there is no room on the disk of {path} ({free_bytes(path):.0f} bytes are free): make"
            " room and start again; the journal was not changed"
        )
    return ReshapeError(
        f"the journal {path} is damaged ({why}): restore the latest copy (docs/backup.md), or move"
        " journal.db* elsewhere and start an empty one with --accept-loss"
    )


def lacks_room(path: Path) -> bool:
    """Whether SQLite cannot write because the disk of a file is full."""
    return free_bytes(path) < _PAGE_BYTES


def free_bytes(path: Path) -> float:
    """Free space of the file system of a file; infinite if it is not known."""
    try:
        free = os.statvfs(path.parent)
    except OSError:
        return inf
    return free.f_bavail * free.f_frsize


def _make_private(path: Path) -> None:
    """Create the file for its owner alone; SQLite gives its further files the same mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        for suffix in ("", "-wal", "-shm"):
            part = path.with_name(path.name + suffix)
            if part.exists():
                part.chmod(0o600)
    except OSError as error:
        raise ReshapeError(f"cannot use the journal {path}: {error.strerror}") from None


#: Tables in the order in which they are checked: those first on which the state depends.
TABLES = (
    *("meta", "site", "records", "sizes", "jobs", "keys", "scripts", "pools", "settings", "facts"),
    *("summaries", "memory", "phases", "orders", "events"),
)
#: Records of ended jobs, which recovery does not read: table, what the seal covers, and a query.
_SEALED = (
    ("records", RECORD, "SELECT job, record FROM records WHERE ended_at IS NOT NULL"),
    ("summaries", SUMMARY, "SELECT job, summary FROM summaries"),
)
#: Types of the values in columns of a declared type, since pages of other tables may be found.
_TYPES = {
    "INTEGER": "'integer'",
    "REAL": "'real', 'integer'",
    "TEXT": "'text'",
    "BLOB": "'blob'",
}
#: Instructions of SQLite between two looks at the time.
_STEPS = 10_000


def _damaged_records(path: Path, within_s: float) -> list[tuple[str, int]]:
    """Return (table, job) of the records whose checksums differ, as far as the time suffices.

    Raises
    ------
    sqlite3.DatabaseError : a table or an index is damaged.
    """
    until, damaged = time.monotonic() + within_s, list[tuple[str, int]]()
    with closing(connect_to_read(path)) as db:
        db.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
        try:
            if structure := _structure(db):
                raise sqlite3.DatabaseError(structure)
            damaged += _broken(db)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            log.info("%s was checked for %g s; 'reshape journal check' checks all", path, within_s)
    return damaged


def _structure(db: sqlite3.Connection) -> str:
    """Return what is wrong with the first damaged table."""
    for table in TABLES:
        ((text,), *_) = db.execute(f"PRAGMA integrity_check('{table}')")
        if text != "ok":
            return " ".join(text.split())
        columns = db.execute(f"PRAGMA table_info('{table}')").fetchall()
        wrong = " OR ".join(
            f"""typeof("{name}") NOT IN ({_TYPES[kind]}, 'null')""" for _, name, kind, *_ in columns
        )
        if db.execute(f"SELECT 1 FROM {table} WHERE {wrong} LIMIT 1").fetchone():
            return f"{table} has values of another table"
    return ""


def _broken(db: sqlite3.Connection) -> Iterator[tuple[str, int]]:
    for table, covered, query in _SEALED:
        for job, record in db.execute(query):
            try:
                unseal(covered.format(job), record)
            except msgspec.DecodeError:
                yield table, job


#: What a service directory has besides the journal that does not change while a service runs.
_OTHER_FILES = ("secret", "memory-folder", "socket-folder", "access")


def back_up(directory: Path, copy: Path) -> int:
    """Copy the journal of a service with its mark, and its keys and names; check the copy.

    Parameters
    ----------
    copy : a folder that does not exist; it becomes a service directory.

    Returns
    -------
    number of the last job in the copy.

    Raises
    ------
    ReshapeError : there is no journal, the folder exists or cannot be written, or the journal is
        damaged.
    """
    source, target = directory / "journal.db", copy / "journal.db"
    with reading(source):  # it is a journal
        pass
    try:
        copy.mkdir(0o700, parents=True)
        for name in _OTHER_FILES:
            if (directory / name).is_dir():
                shutil.copytree(directory / name, copy / name)
            elif (directory / name).exists():
                shutil.copy2(directory / name, copy)
        mark = HighWaterMark(source)  # before the journal, which may grow meanwhile
        if mark.mark is not None:
            shutil.copy2(mark.path, copy)
        with closing(connect_to_read(source)) as db:
            write_copy(db, target)
        sync_folder(copy)
    except FileExistsError:
        raise ReshapeError(f"{copy} exists: name a new folder for the copy") from None
    except (OSError, sqlite3.Error) as error:
        raise ReshapeError(f"cannot copy {directory} to {copy}: {error}") from None
    missing, _ = missing_from(target, HighWaterMark(target), inf)
    if missing:
        raise ReshapeError(f"the copy {target} lacks {missing}")
    with reading(target) as reader:
        return reader.last_job()


def write_copy(db: sqlite3.Connection, target: Path) -> None:
    """Write all that a connection reads to one file, for its owner alone.

    Raises
    ------
    OSError, sqlite3.Error : it cannot be written.
    """
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT, 0o600))
    with closing(sqlite3.connect(target)) as copied:
        db.backup(copied)
        copied.execute("PRAGMA journal_mode=DELETE")  # one file
