"""The shared-memory folders of the jobs of one service on one host."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from pathlib import Path

from reshape.errors import ReshapeError
from reshape.files.private_folder import make_private

MEMORY = Path("/dev/shm")
#: Name of the access file for the processes of jobs, in the folder `JobFolders.memory`.
JOB_ACCESS = "job.json"


class JobFolders(ABC):
    """Paths of the shared memory of jobs; they are the same on all hosts of a service."""

    @property
    @abstractmethod
    def memory(self) -> Path:
        """Folder in /dev/shm for the shared memory of all jobs of a service on this host."""

    def shm(self, job: int) -> Path:
        """Return the shared-memory folder of a job; `make_job_folder` creates it."""
        return self.memory / f"job-{job}"

    @property
    def job_access(self) -> Path:
        """Access file with which the processes of jobs reach a service on another host."""
        return self.memory / JOB_ACCESS

    def make_job_folder(self, job: int) -> None:
        """Create the shared-memory folder of a job, or verify the existing one.

        Raises
        ------
        ReshapeError : the folder cannot be created, or other users have access to it.
        """
        try:
            make_private(self.memory)
            make_private(self.shm(job))
        except OSError as error:
            raise ReshapeError(f"cannot create {self.shm(job)}: {error.strerror}") from None

    def jobs_with_folder(self) -> list[int]:
        """Return the numbers of all jobs that have a shared-memory folder on this host."""
        try:
            names = os.listdir(self.memory)
        except OSError:
            return []
        return sorted(int(name[4:]) for name in names if re.fullmatch(r"job-\d+", name))
