"""The run of a service, kept up to date by threads that read its journal and ask for forecasts."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from reshape.errors import ReshapeError
from reshape.wire.connection import service_in
from scheduler.client.api.client import Client, forecast, list_jobs
from scheduler.client.forecasting import forecast_of_waiting, waiting_lines
from scheduler.client.web.journal_run import JournalRun, story
from scheduler.client.web.run_data import RunData
from scheduler.forecasts.answers import Starts
from scheduler.journal.journal_format import IDENTITY
from scheduler.journal.journal_reader import reading
from scheduler.protocol import messages as m
from scheduler.text.plain import plain

#: Seconds between two looks at the journal; SQLite says without reading it whether it has changed.
LOOK_S = 0.04
#: Seconds between two forecasts at least, and how often as long as the last one took.
FORECAST_S, FORECAST_SHARE = 1.0, 5
#: Seconds that a forecast may take, and that its answer is awaited.
FORECAST_LIMIT_S, FORECAST_WAIT_S = 2.0, 10.0
#: Seconds for which a picture of the present may be out of date.
FRESH_S = 0.5


class LiveRun:
    """A run that goes on.

    Parameters
    ----------
    directory : of the service, which need not run.

    Attributes
    ----------
    version : changes with all that is drawn.
    viewers : number of pages that are open; without any there are no forecasts.
    fault : why the journal cannot be read; "" if it can.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.version, self.viewers, self.fault = 0, 0, "its journal is being read"
        self.on_change: Callable[[], object] = lambda: None
        self._lock = threading.RLock()
        self._followed = JournalRun(str(directory))
        self._kept: tuple[int, float, RunData] | None = None
        self._ends = threading.Event()
        self._threads = [
            threading.Thread(target=run, daemon=True) for run in (self._follow, self._forecast)
        ]

    def start(self) -> None:
        """Start to follow the journal."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads."""
        self._ends.set()
        for thread in self._threads:
            thread.join()

    @property
    def is_served(self) -> bool:
        """Whether the service runs."""
        try:
            service_in(self.directory)
        except ReshapeError:
            return False
        return True

    def _follow(self) -> None:
        while not self._ends.is_set():
            try:
                self._follow_one()
            except (ReshapeError, sqlite3.Error, OSError) as error:
                self._changed(str(error))
            self._ends.wait(1.0)

    def _follow_one(self) -> None:
        """Follow a journal until another one is in its place."""
        with reading(self.directory) as journal:
            identity, seen, served = journal.meta(IDENTITY), None, None
            followed = JournalRun(str(self.directory))
            place = journal.path.stat().st_ino
            while not self._ends.is_set() and journal.path.stat().st_ino == place:
                version = next(journal.rows("PRAGMA data_version"))[0]
                if version != seen:
                    if journal.meta(IDENTITY) != identity:
                        return
                    with self._lock:
                        is_new = followed.update(journal) or seen is None
                        self._followed = followed
                    if is_new:
                        self._changed("")
                    seen = version
                if served != (served := self.is_served):
                    self._changed("")
                self._ends.wait(LOOK_S)

    def _changed(self, fault: str) -> None:
        if fault and fault == self.fault:
            return
        self.fault = fault
        self.version += 1
        self.on_change()

    def _forecast(self) -> None:
        """Ask the service for forecasts and reasons while at least one page is open."""
        done, pause_s = -1, FORECAST_S
        while not self._ends.wait(pause_s):
            pause_s = FORECAST_S
            if not self.viewers or done == self.version:
                continue
            with self._lock:
                if not any(row.group == "queued" for row in self._followed.rows):
                    continue
            done, began = self.version, time.monotonic()
            try:
                with Client(self.directory) as client:
                    asked = m.RequestForecast(limit_s=FORECAST_LIMIT_S)
                    starts = forecast(client, asked, Starts, FORECAST_WAIT_S)
                    listing = list_jobs(client)
            except (ReshapeError, msgspec.MsgspecError, OSError):
                continue  # it is asked again after the next change
            pause_s = max(FORECAST_S, FORECAST_SHARE * (time.monotonic() - began))
            with self._lock:
                reasons = {job.job: job.reason for job in listing.jobs}
                self._followed.expect(reasons, starts.jobs)
            self._changed("")
            done = self.version

    def data(self) -> RunData:
        """Return the run as it is now, with what is expected of it."""
        with self._lock:
            followed, version = self._followed, self.version
            clock = time.time() if self.is_served else 0.0
            if self._kept and self._kept[0] == version and clock - self._kept[1] < FRESH_S:
                return self._kept[2]
            now = clock - followed.origin if clock and followed.origin is not None else None
            run = followed.data(now)
            self._kept = version, clock, run
            return run

    def job(self, number: int) -> dict[str, Any]:
        """Return the row and the story of a job, and of one that waits what would change that.

        Raises
        ------
        ReshapeError : there is no such job.
        """
        with reading(self.directory) as journal:
            told = story(journal, number, time.time() if self.is_served else None)
        row = self._followed.row_of(number)
        if row is None:
            raise ReshapeError(f"job {number} is too old for the page: reshape explain {number}")
        if row.group == "queued":
            try:
                with Client(self.directory) as client:
                    waiting = forecast_of_waiting(client, number)
                lines = [] if waiting is None else [waiting.reason, *waiting_lines(waiting)]
            except ReshapeError as error:
                lines = [f"There is no forecast: {error}"]
            told["waiting"] = [plain(line) for line in lines if line]
        return {"row": row, "story": told}

    def state(self) -> Mapping[str, Any]:
        """Return the data of an event of the stream: versions and the state of the service."""
        return {
            "sequence": self._followed.sequence,
            "version": self.version,
            "served": self.is_served,
            "viewers": self.viewers,
            "now": self._followed.now,
            "fault": plain(self.fault),
        }
