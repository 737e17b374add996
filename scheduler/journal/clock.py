"""The clock of a service: Unix time that advances with the monotonic clock, whatever is set.

Walltimes and waits are durations, so a step of the wall clock (an administrator, NTP, a resumed
virtual machine) must not change them. The service notes in its journal which wall time belongs to
which monotonic reading; from then on its time is that wall time plus the monotonic seconds that
have passed. The note holds for all services of the directory until the machine is booted again,
because the monotonic clock counts from the boot.

What people read and what they write, such as the start of a reservation, is by wall clock. The note
also has the number of seconds by which the wall clock is ahead of the clock of the service. When
the wall clock is set, this number changes, and the event `ClockSet` tells the core. All times of
one job are moved by the same number of seconds, so that their differences remain durations: by how
much the wall clock is ahead of the clock of the service at the end of the job, or now if it has not
ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from scheduler.journal.journal_reader import JournalReader
from scheduler.model.job import Job

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
#: Changes of the wall clock below this many seconds are left until they have added up to it.
LEAST_STEP_S = 1.0


class ClockAnchor(msgspec.Struct, frozen=True):
    """A time of the service (Unix seconds) and the monotonic reading (s) of the same moment.

    Parameters
    ----------
    boot : identifies the boot whose monotonic clock it is.
    ahead_s : wall clock minus the clock of the service as it was noted last, seconds.
    """

    boot: str
    monotonic: float
    at: float
    ahead_s: float = 0.0


def noted_anchor(journal: JournalReader) -> ClockAnchor | None:
    """Return the anchor that a journal holds; None if there is none, or it cannot be read."""
    text = journal.meta("clock")
    try:
        return None if text is None else msgspec.json.decode(text, type=ClockAnchor)
    except msgspec.DecodeError as error:
        journal.report_unreadable("the anchor of the clock", error)
        return None


def noted_ahead_s(journal: JournalReader) -> float:
    """Return by how much the wall clock is ahead of the service's, as a journal says, seconds."""
    anchor = noted_anchor(journal)
    return 0.0 if anchor is None else anchor.ahead_s


def boot_id() -> str:
    """Identify the present boot of the machine; empty where the kernel does not say."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


class Clock:
    """Unix seconds that advance with the monotonic clock and never go back.

    Parameters
    ----------
    noted : anchor of an earlier service of the directory, None if there was none. It is used if it
        belongs to the present boot; otherwise the wall clock gives a new one, and `step` tells by
        how much the times in the journal move.
    earliest : latest time in the journal, Unix seconds; the clock does not start before it.
    wall, monotonic : read the two clocks, seconds.
    boot : identifies the present boot.
    """

    def __init__(
        self,
        noted: ClockAnchor | None = None,
        earliest: float = 0.0,
        *,
        wall: Callable[[], float] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        boot: str | None = None,
    ) -> None:
        boot = boot_id() if boot is None else boot
        self._wall, self._monotonic = wall or time.time, monotonic
        now = monotonic()
        if noted is None or not boot or noted.boot != boot or noted.monotonic > now:
            ahead_s = 0.0 if noted is None else noted.ahead_s
            noted = ClockAnchor(boot, now, self._wall(), ahead_s)
        late = earliest - (noted.at + now - noted.monotonic)
        if late > 0:
            noted = msgspec.structs.replace(noted, at=noted.at + late)
        self.anchor = noted

    def __call__(self) -> float:
        """Return the time of the service now, Unix seconds."""
        return self.anchor.at + (self._monotonic() - self.anchor.monotonic)

    @property
    def ahead_s(self) -> float:
        """Wall clock minus the clock of the service, as of the last `step`, seconds."""
        return self.anchor.ahead_s

    def wall(self) -> float:
        """Return the time that people read now, Unix seconds."""
        return self() + self.ahead_s

    def step(self) -> float:
        """Note a change of the wall clock, and return by how much it was set forward, seconds.

        Returns
        -------
        0 if it was not set, or by less than `LEAST_STEP_S`.
        """
        before = self()
        wall = self._wall()
        unsure_s = self() - before  # the process may have paused between the two clocks
        by_s = wall - before - self.ahead_s
        if abs(by_s) < LEAST_STEP_S + unsure_s:
            return 0.0
        self.anchor = msgspec.structs.replace(self.anchor, ahead_s=self.ahead_s + by_s)
        return by_s


def ahead_of_job_s(journal: JournalReader, job: Job) -> float:
    """Return the seconds by which the recorded times of a job are moved."""
    if job.ended_at is None:
        return noted_ahead_s(journal)
    noted = next(journal.rows("SELECT ended_at FROM records WHERE job=?", job.id), (None,))
    return 0.0 if noted[0] is None else float(noted[0]) - job.ended_at


def moved_time(at: float | None, by_s: float) -> float | None:
    """Move a time; None stays None."""
    return None if at is None else at + by_s
