"""The jobs of a batch site: their numbers, and what was submitted.

A site numbers its jobs from 1 on without gaps, as a service does.

=====================  ============================================================================
file                   contents
=====================  ============================================================================
``numbers/N``          submission key of job N
``jobs/KEY/job.json``  description of the job, beside the files of its batch job
                       (`scheduler.batch_systems.job_folder`)
``open/N``             empty; there as long as job N is not known to have ended, so that a listing
                       of queued and running jobs reads no ended ones
``looked-through``     empty; its time is that of the last removal of old jobs
``.lock``              held while a client gives numbers, writes descriptions or removes jobs
=====================  ============================================================================

A job is created in this order: ``open/N``, ``numbers/N``, ``job.json``, the batch job. The removal
of a job that has ended first removes its folder in one step, then ``numbers/N``. If a process dies
in between, the next creation or removal continues. The latest job stays, so that no number is given
twice.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from reshape.errors import ReshapeError, ServiceUnavailable
from reshape.files.durable_files import remove_drafts, write_durably
from scheduler.text.output_names import output_name

#: Seconds between two removals of old jobs.
REMOVAL_S = 86400.0


class EndedJob(msgspec.Struct, frozen=True):
    """How a job ended; times are Unix seconds, None if they are not known."""

    state: str
    reason: str
    started_at: float | None
    ended_at: float | None
    exit_code: int
    signal: int = 0


class BatchSiteJob(msgspec.Struct, frozen=True):
    """A job of a batch site.

    Parameters
    ----------
    job : its number.
    key : its submission key, and name of its batch job.
    name, processors, walltime_s, argv, cwd, output, submitted_at : as submitted.
    batch_id : id of its batch job; "" if it is not known.
    cancelled_at : when it was cancelled, Unix seconds; None if it was not.
    missing_since : since when the batch system does not run it and it has not noted its exit code,
        Unix seconds; None if that is not so.
    ended : how it ended; None as long as that is not known for sure.
    """

    job: int
    key: str
    name: str
    processors: int
    walltime_s: float
    argv: list[str]
    cwd: str
    output: str
    submitted_at: float
    batch_id: str = ""
    cancelled_at: float | None = None
    missing_since: float | None = None
    ended: EndedJob | None = None

    @property
    def output_file(self) -> Path:
        """File that the job writes to."""
        user = getpass.getuser()  # of the client, who submits the batch job
        return Path(self.cwd) / output_name(self.output, job=self.job, name=self.name, user=user)


class JobRecords:
    """The jobs of a batch site.

    Parameters
    ----------
    folder : of the site.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._numbers, self._open = folder, folder / "numbers", folder / "open"
        self.jobs = folder / "jobs"

    def of_key(self, key: str) -> BatchSiteJob | None:
        """Job of a submission key; None if there is none.

        Raises
        ------
        ServiceUnavailable : its record cannot be read or is damaged; the job may exist.
        """
        path = self.jobs / key / "job.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=BatchSiteJob)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise ServiceUnavailable(f"the record {path} cannot be read: {error}") from None

    def of_number(self, number: int) -> BatchSiteJob:
        """Job of a number.

        Raises
        ------
        ReshapeError : there is none, or its record cannot be read.
        """
        if not 1 <= number <= self.count():
            raise ReshapeError(f"there is no job {number}")
        key = self._key(number)
        found = self.of_key(key) if key else None
        if found is not None and found.job == number:
            return found
        if (self._open / str(number)).exists():
            raise ReshapeError(f"job {number} was not submitted; its client ended before")
        raise ReshapeError(f"job {number} ended long ago, and its record was removed")

    def all(self) -> list[BatchSiteJob]:
        """All jobs by number, without removed ones and those that were never submitted."""
        return self._of_numbers(_numbers_in(self._numbers))

    def open(self) -> list[BatchSiteJob]:
        """Jobs that are not known to have ended, by number; of the others nothing is read."""
        return self._of_numbers(_numbers_in(self._open))

    def count(self) -> int:
        """Number of the latest job; 0 if there is none."""
        return max(_numbers_in(self._numbers), default=0)

    def new(self, job: BatchSiteJob) -> BatchSiteJob:
        """Give a job the next number, or return the earlier one with its key.

        The job counts as not ended from now on, so that it is not removed.

        Raises
        ------
        OSError : the folder cannot be written.
        """
        with self._lock():
            earlier = self.of_key(job.key)
            if earlier is not None:
                earlier = msgspec.structs.replace(earlier, ended=None)
                self._mark_open(earlier.job)
                self._write(earlier)
                return earlier
            begun = _numbers_in(self._open)
            known = next((number for number in begun if self._key(number) == job.key), 0)
            job = msgspec.structs.replace(job, job=known or self.count() + 1)
            self._mark_open(job.job)
            if not known:
                self._numbers.mkdir(mode=0o700, exist_ok=True)
                write_durably(self._numbers / str(job.job), job.key.encode())
            self._write(job)
            return job

    def write(self, job: BatchSiteJob) -> None:
        """Write what is known of a job.

        Raises
        ------
        OSError : it cannot be written.
        """
        with self._lock():
            if job.ended is None and not (self._open / str(job.job)).exists():
                self._mark_open(job.job)
            self._write(job)
            if job.ended is not None:
                (self._open / str(job.job)).unlink(missing_ok=True)

    def is_removal_due(self, now: float) -> bool:
        """Whether the last removal of old jobs was long ago.

        Parameters
        ----------
        now : Unix seconds.
        """
        try:
            return (self._folder / "looked-through").stat().st_mtime <= now - REMOVAL_S
        except FileNotFoundError:
            return True

    def old(self, before: float) -> list[str]:
        """Submission keys of the jobs whose ends were noted before a time, without the latest job.

        Parameters
        ----------
        before : Unix seconds.

        Raises
        ------
        OSError : the folder cannot be written.
        """
        with self._lock():
            write_durably(self._folder / "looked-through", b"")
            for folder in (self._folder, self._numbers, self._open):
                remove_drafts(folder, before)
            self._close_left(before)
            self._complete_removals()
            return [*self._old(before)]

    def remove(
        self, keys: Collection[str], before: float, remove: Callable[[Iterable[str]], None]
    ) -> None:
        """Remove jobs of `old`, except those that were submitted again meanwhile.

        Parameters
        ----------
        remove : removes the folders of these submission keys, each in one step.

        Raises
        ------
        OSError : the folder cannot be written.
        ReshapeError : raised by `remove`.
        """
        with self._lock():
            remove([key for key in self._old(before) if key in keys])
            self._complete_removals()

    def _old(self, before: float) -> dict[str, int]:
        """Submission keys of the jobs to remove, and their numbers."""
        stay = {*_numbers_in(self._open), self.count()}
        found = {}
        for number in _numbers_in(self._numbers):
            key = "" if number in stay else self._key(number)
            if key and self._was_written_before(key, before):
                with contextlib.suppress(ReshapeError):  # it is damaged, and stays
                    job = self.of_key(key)
                    if job is not None and job.job == number and job.ended is not None:
                        found[key] = number
        return found

    def _was_written_before(self, key: str, before: float) -> bool:
        try:
            return (self.jobs / key / "job.json").stat().st_mtime < before
        except FileNotFoundError:
            return False

    def _complete_removals(self) -> None:
        """Remove the numbers of jobs whose folders were removed."""
        stay = {*_numbers_in(self._open), self.count()}
        for number in _numbers_in(self._numbers):
            if number not in stay and not (self.jobs / self._key(number) / "job.json").exists():
                (self._numbers / str(number)).unlink()

    def _close_left(self, before: float) -> None:
        """Complete what clients have left that died: ends, and jobs that were never submitted."""
        latest = self.count()
        for number in _numbers_in(self._open):
            key, path = self._key(number), self._numbers / str(number)
            try:
                job = self.of_key(key) if key else None
            except ReshapeError:  # it is damaged
                continue
            if job is not None and job.ended is None:
                continue
            if job is None:
                if number >= latest or (key and path.stat().st_mtime >= before):
                    continue
                path.unlink(missing_ok=True)
            (self._open / str(number)).unlink()

    def _of_numbers(self, numbers: Sequence[int]) -> list[BatchSiteJob]:
        keys = {number: self._key(number) for number in numbers}
        found = {number: self.of_key(key) for number, key in keys.items() if key}
        return [job for number, job in found.items() if job is not None and job.job == number]

    def _write(self, job: BatchSiteJob) -> None:
        folder = self.jobs / job.key
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(folder / "job.json", msgspec.json.encode(job))

    def _mark_open(self, number: int) -> None:
        self._open.mkdir(mode=0o700, exist_ok=True)
        write_durably(self._open / str(number), b"")

    def _key(self, number: int) -> str:
        """Submission key of a number; "" if the number was not given, or its job was removed."""
        try:
            return (self._numbers / str(number)).read_text().strip()
        except FileNotFoundError:
            return ""

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Hold the lock under which one client at a time changes the records."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self._folder / ".lock", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _numbers_in(folder: Path) -> list[int]:
    """Names of the files of a folder that are numbers, in order."""
    try:
        return sorted(int(name) for name in os.listdir(folder) if name.isdecimal())
    except FileNotFoundError:
        return []
