"""Reading the output files of jobs."""

from __future__ import annotations

from pathlib import Path

from reshape.errors import ReshapeError
from scheduler.protocol.messages import JobInfo


def read_output(job: JobInfo, is_error: bool = False, begin: int = 0) -> bytes:
    """Read the output of a job, or its standard error, from a file that this host reaches.

    Parameters
    ----------
    begin : bytes to leave out.

    Raises
    ------
    ReshapeError : the file cannot be read; a `FileNotFoundError` is its cause if it does not exist.
    """
    path = job.error if is_error and job.error else job.output
    try:
        with Path(path).open("rb") as file:
            file.seek(begin)
            return file.read()
    except OSError as error:
        raise ReshapeError(
            f"cannot read the output {path} of job {job.job} ({job.state}): {error.strerror}"
        ) from error
