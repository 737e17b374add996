"""Checks of the structure and of the checksums of a journal, which change nothing."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from math import inf
from pathlib import Path

from scheduler.replay.journal_reader import RECORD, SUMMARY
from scheduler.replay.seals import BrokenSealError, unseal

#: Tables in the order in which they are checked: those first on which the state depends.
TABLES = (
    *("meta", "site", "records", "jobs", "keys", "pools", "settings", "facts", "summaries"),
    *("memory", "sums", "phases", "orders", "events"),
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


class Faults:
    """What is wrong with a journal.

    Parameters
    ----------
    path : the journal.
    within_s : seconds after which the check ends, whatever is left.

    Attributes
    ----------
    structure : what SQLite says of the first damaged table or index; empty if there is none.
    records : (table, job) of records whose checksum differs.
    is_complete : whether all was checked.
    """

    def __init__(self, path: Path, within_s: float = inf) -> None:
        self.structure = ""
        self.records: list[tuple[str, int]] = []
        self.is_complete = True
        until = time.monotonic() + within_s
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            db.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
            try:
                known = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
                self.structure = _structure(db, known)
                if not self.structure:
                    self.records += _broken(db, known)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                    raise
                self.is_complete = False
            except sqlite3.DatabaseError as error:
                self.structure = str(error)


def _structure(db: sqlite3.Connection, known: set[str]) -> str:
    """Return what is wrong with the first damaged table; those of later formats are not known."""
    for table in TABLES:
        if table in known:
            ((text,), *_) = db.execute(f"PRAGMA integrity_check('{table}')")
            if text != "ok":
                return " ".join(text.split())
            columns = db.execute(f"PRAGMA table_info('{table}')").fetchall()
            wrong = " OR ".join(
                f"""typeof("{name}") NOT IN ({_TYPES[kind]}, 'null')"""
                for _, name, kind, *_ in columns
            )
            if db.execute(f"SELECT 1 FROM {table} WHERE {wrong} LIMIT 1").fetchone():
                return f"{table} has values of another table"
    return ""


def _broken(db: sqlite3.Connection, known: set[str]) -> Iterator[tuple[str, int]]:
    for table, covered, query in _SEALED:
        for job, record in db.execute(query) if table in known else ():
            try:
                unseal(covered.format(job), record)
            except BrokenSealError:
                yield table, job
