"""Retention: what the journal does not keep forever, removed in small steps.

- Resize points, and the decisions to continue at them, are most of a journal. It keeps the latest.
- Ended jobs are removed after a number of days, if the configuration has one.

A journal of which anything was removed cannot be replayed: `REMOVED` in its table `meta` names the
last batch that is incomplete.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from scheduler.config.settings import JournalConfig
from scheduler.journal.journal import Journal
from scheduler.journal.journal_format import CONTINUE_REMOVED, LAST_JOB, REMOVED, ROUTINE

#: Seconds that one step may take.
STEP_S = 0.006
#: Rows of `events` or `orders`, and jobs, that are looked at together.
ROWS, JOBS = 200, 10
DAY_S = 86400.0

_BATCH = "SELECT batch FROM events WHERE seq>? ORDER BY seq LIMIT 1"
#: Tables with rows of a job; its routine events are removed with those of others.
_TABLES = (
    *("events", "orders", "phases", "facts", "memory", "summaries", "keys", "jobs", "records"),
)
#: Table -> the kind of its rows that are removed, and the key in `meta` of the last row looked at.
_ROUTINE = {
    "events": ("ResizePoint", "resize points removed"),
    "orders": ("Continue", CONTINUE_REMOVED),
}


class Retention:
    """Removes from an open journal what its configuration does not keep.

    Parameters
    ----------
    clock : the service's clock, Unix seconds.
    """

    def __init__(
        self, journal: Journal, config: JournalConfig, clock: Callable[[], float] = time.time
    ) -> None:
        self._journal, self._config, self._clock = journal, config, clock
        self._done = {table: int(journal.meta(key) or 0) for table, (_, key) in _ROUTINE.items()}

    def step(self, seconds: float = STEP_S) -> bool:
        """Work for about this long; return whether something is left to do."""
        until = time.monotonic() + seconds
        while self._remove_points() or self._remove_old_jobs():
            if time.monotonic() >= until:
                return True
        return False

    def finish(self) -> None:
        """Do all that is left, for a journal that no service uses."""
        while self.step():
            self._journal.commit()
        self._journal.commit()

    def _remove_points(self) -> bool:
        journal = self._journal
        (newest,) = next(journal.rows("SELECT max(seq) FROM events"))
        removable = (newest or 0) - self._config.keep_resize_points
        if removable <= 0:
            return False
        kept_from = next(journal.rows(_BATCH, removable), (journal.batch + 1,))[0]
        return any(self._remove_from(table, kept_from) for table in _ROUTINE)

    def _remove_from(self, table: str, batch: int) -> bool:
        journal, (kind, key) = self._journal, _ROUTINE[table]
        query = f"SELECT seq, batch, kind FROM {table} WHERE seq>? AND batch<?"
        limits = self._done[table], batch, ROWS
        rows = list(journal.rows(f"{query} ORDER BY seq LIMIT ?", *limits))
        if not rows:
            return False
        removed = [row for row in rows if row[2] == kind]
        if removed:
            statement = f"DELETE FROM {table} WHERE seq BETWEEN ? AND ? AND kind='{kind}'"
            journal.write(statement, removed[0][0], removed[-1][0])
        if removed and table == "events":
            note_removed(journal, removed[-1][1])
        self._done[table] = rows[-1][0]
        journal.note_meta(key, str(self._done[table]))
        journal.sync()
        return True

    def _remove_old_jobs(self) -> bool:
        days = self._config.keep_days
        return days is not None and prune(self._journal, self._clock() - days * DAY_S) > 0


def prune(journal: Journal, before: float, limit: int = JOBS) -> int:
    """Remove a few of the jobs that ended before a time (Unix seconds); return how many."""
    rows = list(
        journal.rows(
            "SELECT job, batch FROM records WHERE ended_at IS NOT NULL AND ended_at<?"
            " ORDER BY ended_at LIMIT ?",
            *(before, limit),
        )
    )
    if rows:
        journal.note_meta(LAST_JOB, str(journal.last_job()))
        note_removed(journal, max(batch for _, batch in rows))
        for number, _ in rows:
            for table in _TABLES:
                others = f" AND kind NOT IN {ROUTINE}" if table == "events" else ""
                journal.write(f"DELETE FROM {table} WHERE job=?{others}", number)
        journal.sync()
    return len(rows)


def note_removed(journal: Journal, batch: int) -> None:
    """Note that batches up to this one are not complete any more."""
    journal.note_meta(REMOVED, str(max(batch, int(journal.meta(REMOVED) or 0))))
