"""Requests of the commands to a service, with their timeouts.

The parameter `directory` of each function is the directory of a service, or an access file.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from reshape.errors import ReshapeError, ServiceUnavailable
from reshape.wire.connection import endpoint_of, is_access_file
from scheduler.model.requests.task_array import TaskArray
from scheduler.protocol.client import Client, connect
from scheduler.protocol.messages import (
    ArrayTasks,
    Info,
    JobInfo,
    JobListing,
    ListJobs,
    Message,
    ReadArray,
    ServerInfo,
    Wait,
)

#: Interval in seconds after which a wait is requested again, in case the service was restarted.
ASK_AGAIN_S = 5.0
#: Time limit of one answer to many requests, seconds.
ANSWER_S = 30.0
#: Stands for the number of the job that was submitted last.
LAST = 0


def ask(directory: Path | str, message: Message, timeout: float = 10.0) -> Message:
    """Send one message to the service of a directory and return its answer.

    Raises
    ------
    ServiceUnavailable : there is no service, or it does not answer in time.
    ReshapeError : the service refuses the request.
    """
    with connect(directory) as client:
        return client.request(message, timeout)


def ask_all(directory: Path | str, messages: Iterable[Message]) -> Iterator[Message]:
    """Send messages over one connection and yield their answers in order; a refusal is a `Failure`.

    Raises
    ------
    ServiceUnavailable : there is no service, or it does not answer in time. What was sent last and
        is not answered may have been accepted.
    """
    with connect(directory) as client:
        yield from client.request_all(messages, ANSWER_S)


def service_info(directory: Path | str, timeout: float = 10.0) -> Info:
    """Request the state of the service; raises the errors of `ask`."""
    answer = ask(directory, ServerInfo(), timeout)
    assert isinstance(answer, Info)
    return answer


def list_jobs(
    directory: Path | str, job: int | None = None, ended: bool = False, *, steps: bool = False
) -> JobListing:
    """Request one job, or all queued and running jobs; raises the errors of `ask`.

    Parameters
    ----------
    job : number of the only job to list; None: all.
    ended : whether to include jobs that have ended.
    steps : whether to include steps of jobs that have not ended.
    """
    answer = ask(directory, ListJobs(job=job, ended=ended, steps=steps), timeout=30.0)
    assert isinstance(answer, JobListing)
    return answer


def number_of(directory: Path | str, job: int) -> int:
    """Resolve `LAST`, tasks and steps to the number of a job; other numbers stay as they are.

    Raises
    ------
    ReshapeError : no job was submitted yet, the array has no such task, or the job no such step.
    """
    if isinstance(job, StepNumber):
        return _number_of_step(directory, job)
    if isinstance(job, TaskNumber):
        return _number_of_task(directory, job)
    if job != LAST:
        return job
    last = service_info(directory).last
    if last == 0:
        raise ReshapeError("there is no last job: no job was submitted yet")
    return last


class TaskNumber(int):
    """Number of an array, with the index of one of its tasks."""

    index: int

    @classmethod
    def of(cls, array: int, index: int) -> TaskNumber:
        """Make it from both."""
        made = cls(array)
        made.index = index
        return made


class StepNumber(int):
    """A job as a command names it, with the index of one of its steps."""

    job: int
    index: int

    @classmethod
    def of(cls, job: int, index: int) -> StepNumber:
        """Make it from both; the job may be a task, or `LAST`."""
        made = cls(job)
        made.job, made.index = job, index
        return made


def _number_of_step(directory: Path | str, step: StepNumber) -> int:
    job = number_of(directory, step.job)
    steps = dict(list_jobs(directory, job).jobs[0].steps)
    if step.index not in steps:
        known = f"its steps are {min(steps)} to {max(steps)}" if steps else "it has had none"
        raise ReshapeError(f"job {job} has no step {step.index}: {known}")
    return steps[step.index]


def _number_of_task(directory: Path | str, task: TaskNumber) -> int:
    answer = ask(directory, ReadArray(job=int(task)))
    assert isinstance(answer, ArrayTasks)
    place = TaskArray.parse(answer.array).place(task.index)
    if place is None:
        raise ReshapeError(f"array {int(task)} has no task {task.index}: it has {answer.array}")
    return int(task) + 1 + place


def wait_for(directory: Path | str, job: int, until: float | None = None) -> JobInfo | None:
    """Wait for the end of a job, across restarts of the service.

    Parameters
    ----------
    until : time of the monotonic clock at which to give up; None: never.

    Returns
    -------
    the job, or None if the time is over.

    Raises
    ------
    ServiceUnavailable : there is no service.
    ReshapeError : there is no such job, or the key was revoked.
    """
    while True:
        with connect(directory) as client:
            is_heard = True
            while is_heard:
                try:
                    answer = client.request(Wait(job=job), _left_s(until))
                except ServiceUnavailable:
                    if not is_access_file(directory):
                        endpoint_of(directory)  # raises if the service has ended
                    if until is not None and time.monotonic() >= until:
                        return None
                    is_heard = _answers(client, _left_s(until))
                else:
                    assert isinstance(answer, JobListing)
                    return answer.jobs[0]


def _left_s(until: float | None) -> float:
    """Seconds until a wait is requested again."""
    return ASK_AGAIN_S if until is None else max(0.0, min(ASK_AGAIN_S, until - time.monotonic()))


def _answers(client: Client, timeout: float) -> bool:
    """Whether a service answers this connection; it drops messages with a revoked key.

    A new connection tells whether the key was revoked, since it begins with a handshake.
    """
    try:
        client.request(ServerInfo(), timeout)
    except ServiceUnavailable:
        return False
    return True
