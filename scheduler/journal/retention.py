"""Retention: what the journal does not keep forever, removed in small steps.

- Resize points, and the decisions to continue at them, are most of a journal. Of all but the latest
  the journal keeps sums by job and size.
- Ended jobs whose descriptions were removed, because they were damaged, get new ones.
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
from scheduler.journal.descriptions import describe_recorded, encode_summary
from scheduler.journal.ended_jobs import (
    recorded_job,
    without_description,
    without_environment,
)
from scheduler.journal.journal import Journal
from scheduler.journal.journal_format import LAST_JOB, REMOVED
from scheduler.model.events import ResizePoint

#: Seconds that one step may take.
STEP_S = 0.006
#: Rows of `events` or `orders`, and jobs, that are looked at together.
ROWS, JOBS = 200, 10
DAY_S = 86400.0

_EVENTS = "SELECT seq, batch, kind, event FROM events WHERE seq>? AND batch<? ORDER BY seq LIMIT ?"
_ORDERS = "SELECT seq FROM orders WHERE seq>? AND batch<? ORDER BY seq LIMIT ?"
_BATCH = "SELECT batch FROM events WHERE seq>? ORDER BY seq LIMIT 1"
_NO_EVENTS = "DELETE FROM events WHERE seq BETWEEN ? AND ? AND kind='ResizePoint'"
_NO_ORDERS = "DELETE FROM orders WHERE seq BETWEEN ? AND ? AND kind='Continue'"
_ADD = """INSERT INTO sums VALUES (?, ?, ?, ?, ?) ON CONFLICT (job, size) DO UPDATE SET
points=points+excluded.points, iteration_s=iteration_s+excluded.iteration_s,
last_at=max(last_at, excluded.last_at)"""
_NO_JOB = (
    "DELETE FROM events WHERE job=? AND kind NOT IN ('ResizePoint', 'Continue')",
    "DELETE FROM orders WHERE job=?",
    "DELETE FROM phases WHERE job=?",
    "DELETE FROM facts WHERE job=?",
    "DELETE FROM memory WHERE job=?",
    "DELETE FROM sums WHERE job=?",
    "DELETE FROM summaries WHERE job=?",
    "DELETE FROM keys WHERE job=?",
    "DELETE FROM jobs WHERE job=?",
    "DELETE FROM records WHERE job=?",
)
_point = msgspec.json.Decoder(ResizePoint)
#: Keys in `meta` of the last rows that were looked at.
_EVENTS_DONE, _ORDERS_DONE = "resize points removed", "continue orders removed"


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
        self._events_done = int(journal.meta(_EVENTS_DONE) or 0)
        self._orders_done = int(journal.meta(_ORDERS_DONE) or 0)
        self._described = 0
        self._last = journal.last_job()

    def step(self, seconds: float = STEP_S) -> bool:
        """Work for about this long; return whether something is left to do."""
        until = time.monotonic() + seconds
        while self._remove_points() or self._add_descriptions() or self._remove_old_jobs():
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
        return self._remove_events(kept_from) or self._remove_orders(kept_from)

    def _remove_events(self, batch: int) -> bool:
        journal = self._journal
        rows = list(journal.rows(_EVENTS, self._events_done, batch, ROWS))
        if not rows:
            return False
        points = [row for row in rows if row[2] == "ResizePoint"]
        if points:
            self._add_sums([blob for *_, blob in points])
            journal.write(_NO_EVENTS, points[0][0], points[-1][0])
            note_removed(journal, points[-1][1])
        self._events_done = rows[-1][0]
        journal.note_meta(_EVENTS_DONE, str(self._events_done))
        journal.sync()
        return True

    def _remove_orders(self, batch: int) -> bool:
        journal = self._journal
        rows = list(journal.rows(_ORDERS, self._orders_done, batch, ROWS))
        if not rows:
            return False
        journal.write(_NO_ORDERS, rows[0][0], rows[-1][0])
        self._orders_done = rows[-1][0]
        journal.note_meta(_ORDERS_DONE, str(self._orders_done))
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
                job = recorded_job(self._journal, point.job)
                sizes[point.job] = () if job is None else job.sizes
            history = sizes[point.job]
            index = bisect_right(history, point.at, key=lambda change: change[0])
            key = point.job, history[index - 1][1] if index else 0
            count, seconds, _ = sums.get(key, (0, 0.0, 0.0))
            sums[key] = count + 1, seconds + point.iteration_s, point.at
        for (number, size), values in sums.items():
            self._journal.write(_ADD, number, size, *values)

    def _add_descriptions(self) -> bool:
        journal, first = self._journal, self._described + 1
        if first > self._last:
            return False
        self._described += JOBS
        for number in without_description(journal, first, self._described):
            job = recorded_job(journal, number)
            if job is not None:
                journal.note_summary(number, encode_summary(describe_recorded(job, journal)))
                drop_environment(journal, number)
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
            for statement in _NO_JOB:
                journal.write(statement, number)
        journal.sync()
    return len(rows)


def drop_environment(journal: Journal, number: int) -> None:
    """Replace the submission of an ended job by one without its environment."""
    for _, token, submission in journal.jobs([number]):
        journal.replace_submission(number, token, without_environment(submission))


def note_removed(journal: Journal, batch: int) -> None:
    """Note that batches up to this one are not complete any more."""
    journal.note_meta(REMOVED, str(max(batch, int(journal.meta(REMOVED) or 0))))
