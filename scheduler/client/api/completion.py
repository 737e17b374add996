"""What a shell completes: jobs, partitions and nodes of the service.

A service that does not answer within a second completes nothing, and prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click
from click.shell_completion import CompletionItem

from reshape.errors import ReshapeError
from scheduler.client.api import operations
from scheduler.client.api.client import Client
from scheduler.protocol import messages as m

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
