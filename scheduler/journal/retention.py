"""Retention: what the journal does not keep forever, removed in small steps.

- Resize points, and the decisions to continue at them, are most of a journal. Of all but the latest
  the journal keeps sums by job and size.
- Ended jobs are removed after a number of days, if the configuration has one.

A journal of which anything was removed cannot be replayed: `REMOVED` in its table `meta` names the
last batch that is incomplete.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable

import msgspec

from scheduler.config.settings import JournalConfig
from scheduler.journal.journal import Journal
from scheduler.journal.journal_format import LAST_JOB, REMOVED, ROUTINE
from scheduler.model.events import ResizePoint

#: Seconds that one step may take.
STEP_S = 0.006
#: Rows of `events` or `orders`, and jobs, that are looked at together.
ROWS, JOBS = 200, 10
DAY_S = 86400.0

_BATCH = "SELECT batch FROM events WHERE seq>? ORDER BY seq LIMIT 1"
_ADD = """INSERT INTO sums VALUES (?, ?, ?, ?, ?) ON CONFLICT (job, size) DO UPDATE SET
points=points+excluded.points, iteration_s=iteration_s+excluded.iteration_s,
last_at=max(last_at, excluded.last_at)"""
#: Tables with rows of a job; its routine events are removed with those of others.
_TABLES = (
    *("events", "orders", "phases", "facts", "memory", "sums", "summaries", "keys", "jobs"),
    "records",
)
_point = msgspec.json.Decoder(ResizePoint)
#: Table -> the kind of its rows that are removed, and the key in `meta` of the last row looked at.
_ROUTINE = {
    "events": ("ResizePoint", "resize points removed"),
    "orders": ("Continue", "continue orders removed"),
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
        query = f'SELECT seq, batch, kind, "{table[:-1]}" FROM {table} WHERE seq>? AND batch<?'
        limits = self._done[table], batch, ROWS
        rows = list(journal.rows(f"{query} ORDER BY seq LIMIT ?", *limits))
        if not rows:
            return False
        removed = [row for row in rows if row[2] == kind]
        if removed:
            statement = f"DELETE FROM {table} WHERE seq BETWEEN ? AND ? AND kind='{kind}'"
            journal.write(statement, removed[0][0], removed[-1][0])
        if removed and table == "events":
            self._add_sums([blob for *_, blob in removed])
            note_removed(journal, removed[-1][1])
        self._done[table] = rows[-1][0]
        journal.note_meta(key, str(self._done[table]))
        journal.sync()
        return True

    def _add_sums(self, blobs: list[bytes]) -> None:
        sums: dict[tuple[int, int], tuple[int, float, float]] = {}
        sizes: dict[int, tuple[tuple[float, int], ...]] = {}
        for blob in blobs:
            try:
                point = _point.decode(blob)
            except msgspec.DecodeError as error:
                self._journal.report_unreadable("a resize point", error)
                continue
            if point.job not in sizes:
                job = self._journal.recorded_job(point.job)
                sizes[point.job] = () if job is None else job.sizes
            history = sizes[point.job]
            index = bisect_right(history, point.at, key=lambda change: change[0])
            key = point.job, history[index - 1][1] if index else 0
            count, seconds, _ = sums.get(key, (0, 0.0, 0.0))
            sums[key] = count + 1, seconds + point.iteration_s, point.at
        for (number, size), values in sums.items():
            self._journal.write(_ADD, number, size, *values)

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
