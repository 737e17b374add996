"""What commands ask of a service, and how long they wait for it."""

from __future__ import annotations

import time
from pathlib import Path

from reshape.errors import ReshapeError, ServiceUnavailable
from reshape.wire.client import Client, endpoint_of
from reshape.wire.messages import Info, JobInfo, Jobs, ListJobs, Message, ServerInfo, Wait

#: A wait is asked anew after this time, so that one which a service took along with it is not lost.
ASK_AGAIN_S = 5.0
#: Selector of the job submitted last.
LAST = 0


def ask(directory: Path | str, message: Message, timeout: float = 10.0) -> Message:
    """Send one message to the service of a directory and give its answer.

    Raises
    ------
    ServiceUnavailable : there is none, or it does not answer in time.
    ReshapeError : it answers that this cannot be done.
    """
    with Client(endpoint_of(directory)) as client:
        return client.request(message, timeout)


def service_info(directory: Path | str, timeout: float = 10.0) -> Info:
    """Ask for the service in figures; errors are those of `ask`."""
    answer = ask(directory, ServerInfo(), timeout)
    assert isinstance(answer, Info)
    return answer


def list_jobs(directory: Path | str, job: int | None = None, ended: bool = False) -> Jobs:
    """Ask for one job, or those queued and running (and ended); errors are those of `ask`."""
    answer = ask(directory, ListJobs(job=job, ended=ended), timeout=30.0)
    assert isinstance(answer, Jobs)
    return answer


def number_of(directory: Path | str, job: int) -> int:
    """Give the number of a job, also where it is `LAST`.

    Raises
    ------
    ReshapeError : none was submitted yet.
    """
    if job != LAST:
        return job
    info = service_info(directory)
    count = info.queued + info.running + info.ended  # numbers have no gaps
    if count == 0:
        raise ReshapeError("there is no last job: none was submitted yet")
    return count


def wait_for(directory: Path | str, job: int, until: float | None = None) -> JobInfo | None:
    """Wait for the end of a job, also over a restart of the service.

    Parameters
    ----------
    until : on the monotonic clock, when to give up; None is never.

    Returns
    -------
    the job, or None if the time is over

    Raises
    ------
    ServiceUnavailable : there is no service (any more).
    ReshapeError : there is no such job.
    """
    with Client(endpoint_of(directory)) as client:
        while True:
            left = ASK_AGAIN_S if until is None else min(ASK_AGAIN_S, until - time.monotonic())
            try:
                answer = client.request(Wait(job=job), max(0.0, left))
            except ServiceUnavailable:
                endpoint_of(directory)  # is there still one?
                if until is not None and time.monotonic() >= until:
                    return None
            else:
                assert isinstance(answer, Jobs)
                return answer.jobs[0]
