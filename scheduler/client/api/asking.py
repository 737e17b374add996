"""Requests of the commands to a service, each over a connection of its own.

The parameter `directory` of each function is the directory of a service, or an access file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from scheduler.client.api import operations
from scheduler.client.api.client import Client
from scheduler.client.api.operations import ANSWER_S, Operation
from scheduler.model.arrays import JobName
from scheduler.protocol.messages import Info, JobInfo, JobListing, Message

T = TypeVar("T")

#: Time limit of one answer to many requests, seconds.
MANY_ANSWERS_S = 30.0


def ask(directory: Path | str, message: Message, timeout: float = ANSWER_S) -> Message:
    """Send one message to the service of a directory and return its answer.

    Raises
    ------
    ServiceUnavailable : there is no service, or it does not answer in time.
    ReshapeError : the service refuses the request.
    """
    with Client(directory) as client:
        return client.request(message, timeout)


def ask_all(directory: Path | str, messages: Iterable[Message]) -> Iterator[Message]:
    """Send messages over one connection and yield their answers in order; a refusal is a `Failure`.

    Raises
    ------
    ServiceUnavailable : there is no service, or it does not answer in time. What was sent last and
        is not answered may have been accepted.
    """
    with Client(directory) as client:
        yield from client.request_all(messages, MANY_ANSWERS_S)


def service_info(directory: Path | str, timeout: float = ANSWER_S) -> Info:
    """Request the state of the service; raises the errors of `ask`."""
    with Client(directory) as client:
        return client.info(timeout)


def list_jobs(
    directory: Path | str, job: int | None = None, ended: bool = False, *, steps: bool = False
) -> JobListing:
    """Request one job, or all queued and running jobs; see `operations.list_jobs`."""
    return run(directory, operations.list_jobs(job, ended=ended, steps=steps))


def run(directory: Path | str, operation: Operation[T]) -> T:
    """Carry out an operation over a connection of its own; see `operations`."""
    with Client(directory) as client:
        return client.run(operation)


def number_of(directory: Path | str, name: JobName) -> int:
    """Find the number of a job, a task or a step; see `operations.number_of`."""
    return run(directory, operations.number_of(name))


def wait_for(directory: Path | str, job: int, until: float | None = None) -> JobInfo | None:
    """Wait for the end of a job, across restarts of the service; see `operations.wait`."""
    with Client(directory) as client:
        return client.run(operations.wait(client.service, job, until))
