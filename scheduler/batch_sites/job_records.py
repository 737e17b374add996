"""The jobs of a batch site: their numbers, and what was submitted.

A site numbers its jobs from 1 on without gaps, as a service does. ``numbers/N`` names the
submission key of job N, and ``jobs/KEY/job.json`` describes it, beside the files of the batch job
(`scheduler.batch_systems.recorded`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from reshape.errors import ReshapeError, ServiceUnavailable


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
        return Path(self.cwd) / self.output.replace("%{JOB_ID}", str(self.job))


class JobRecords:
    """The jobs of a batch site.

    Parameters
    ----------
    folder : of the site.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
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
        try:
            key = (self._folder / "numbers" / str(number)).read_text().strip()
        except FileNotFoundError:
            raise ReshapeError(f"there is no job {number}") from None
        found = self.of_key(key)
        if found is None:
            raise ReshapeError(f"job {number} was not submitted; its client ended before")
        return found

    def all(self) -> list[BatchSiteJob]:
        """All jobs by number, without those whose client ended before the submission."""
        numbers = range(1, self.count() + 1)
        keys = [(self._folder / "numbers" / str(number)).read_text().strip() for number in numbers]
        return [found for key in keys if (found := self.of_key(key)) is not None]

    def count(self) -> int:
        """Number of the latest job; 0 if there is none."""
        try:
            return len(os.listdir(self._folder / "numbers"))
        except FileNotFoundError:
            return 0

    def new(self, job: BatchSiteJob) -> BatchSiteJob:
        """Give a job the next number, or return the earlier one with its key.

        Raises
        ------
        OSError : the folder cannot be written.
        """
        with self._lock():
            earlier = self.of_key(job.key)
            if earlier is not None:
                return earlier
            numbers = self._folder / "numbers"
            numbers.mkdir(mode=0o700, exist_ok=True)
            known = next((n for n in range(self.count(), 0, -1) if self._key(n) == job.key), 0)
            job = msgspec.structs.replace(job, job=known or self.count() + 1)
            if not known:
                _write(numbers / str(job.job), job.key.encode())
            self.write(job)
            return job

    def write(self, job: BatchSiteJob) -> None:
        """Write what is known of a job.

        Raises
        ------
        OSError : it cannot be written.
        """
        folder = self.jobs / job.key
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(folder / "job.json", msgspec.json.encode(job))

    def _key(self, number: int) -> str:
        return (self._folder / "numbers" / str(number)).read_text().strip()

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Hold the lock under which one client at a time gives numbers."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self._folder / ".lock", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _write(path: Path, data: bytes) -> None:
    """Write a file durably in one step; only its user can read it."""
    # Hidden, so that it does not count as a number while it is written.
    part = path.parent.parent / f".{path.parent.name}.{path.name}.{os.getpid()}"
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
