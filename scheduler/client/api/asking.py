"""Requests of the commands to a service, each over a connection of its own, and shell completion.

The parameter `directory` of each function is the directory of a service, or an access file. A shell
completes jobs, partitions and nodes of the service: one that does not answer within a second
completes nothing, and prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import click
from click.shell_completion import CompletionItem

from reshape.errors import ReshapeError
from scheduler.client.api import operations
from scheduler.client.api.client import Client
from scheduler.client.api.operations import ANSWER_S, Operation
from scheduler.model.arrays import JobName
from scheduler.protocol import messages as m

T = TypeVar("T")


def ask(directory: Path | str, message: m.Message, timeout: float = ANSWER_S) -> m.Message:
    """Send one message to the service of a directory and return its answer.

    Raises
    ------
    ServiceUnavailable : there is no service, or it does not answer in time.
    ReshapeError : the service refuses the request.
    """
    with Client(directory) as client:
        return client.request(message, timeout)


def service_info(directory: Path | str, timeout: float = ANSWER_S) -> m.Info:
    """Request the state of the service; raises the errors of `ask`."""
    with Client(directory) as client:
        return client.info(timeout)


def list_jobs(
    directory: Path | str, job: int | None = None, ended: bool = False, *, steps: bool = False
) -> m.JobListing:
    """Request one job, or all queued and running jobs; see `operations.list_jobs`."""
    return run(directory, operations.list_jobs(job, ended=ended, steps=steps))


def run(directory: Path | str, operation: Operation[T]) -> T:
    """Carry out an operation over a connection of its own; see `operations`."""
    with Client(directory) as client:
        return client.run(operation)


def number_of(directory: Path | str, name: JobName) -> int:
    """Find the number of a job, a task or a step; see `operations.number_of`."""
    return run(directory, operations.number_of(name))


def wait_for(directory: Path | str, job: int, until: float | None = None) -> m.JobInfo | None:
    """Wait for the end of a job, across restarts of the service; see `operations.wait`."""
    with Client(directory) as client:
        return client.run(operations.wait(client.service, job, until))


#: Seconds that a service may take.
_PATIENCE_S = 1.0


@contextmanager
def _service(context: click.Context) -> Iterator[Client]:
    """Connect to the service that the command line names; what goes wrong ends the block."""
    with suppress(ReshapeError, OSError), Client(context.params.get("directory")) as client:
        yield client


def complete_jobs(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the number of a queued or running job; its name and state are shown beside it."""
    items: list[CompletionItem] = []
    with _service(context) as client:
        listing = client.run(operations.ask(m.ListJobs(), m.JobListing, _PATIENCE_S))
        for job in listing.jobs:
            number = job.label.partition("_[")[0] or str(job.job)
            if number.startswith(incomplete):
                items.append(CompletionItem(number, help=f"{job.name} {job.state}"))
    return items


def complete_partitions(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of a partition of the service."""
    names: list[str] = []
    with _service(context) as client:
        names = [part.name for part in client.info(_PATIENCE_S).partitions]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_nodes(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of a node of the service; its state is shown beside it."""
    nodes: list[m.NodeInfo] = []
    with _service(context) as client:
        nodes = client.run(operations.ask(m.ListMachine(part="nodes"), m.Nodes, _PATIENCE_S)).nodes
    matching = (node for node in nodes if node.name.startswith(incomplete))
    return [CompletionItem(node.name, help=node.state) for node in matching]
