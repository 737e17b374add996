"""The option of the commands that names a service, and shell completion of what the service has.

A shell completes jobs, partitions and nodes of the service: one that does not answer within a
second completes nothing, and prints nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from reshape.errors import ReshapeError
from scheduler.client.api.client import Client
from scheduler.client.options import directory_as, is_given, place
from scheduler.protocol import messages as m

_Command = TypeVar("_Command", bound=Callable[..., Any])
_ACCESS, _CLIENTS = "reshape.access", "reshape.clients"  # keys of the context's further data
#: Seconds that a service may take for a completion.
_PATIENCE_S = 1.0


def _note_access(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    path = place(ctx, param, value)
    if not path.is_file():
        raise click.BadParameter(f"there is no access file {path}", ctx, param)
    ctx.meta[_ACCESS] = (path, is_given(ctx, "access"))


def _service(ctx: click.Context, param: click.Parameter, value: str) -> Client:
    """Return a client; what the command line names overrides variables."""
    access, access_given = ctx.meta.get(_ACCESS, (None, False))
    directory_given = is_given(ctx, "service")
    path = place(ctx, param, value)
    if directory_given and path.is_file():
        raise click.BadParameter(f"{value} is a file; an access file needs --access", ctx, param)
    if access_given and directory_given:
        raise click.UsageError("--access and --dir both name a service; remove one", ctx)
    return opened(path if access is None or directory_given else access)


def opened(path: Path) -> Client:
    """Return the client of a service, which is closed at the end of the present command.

    Parameters
    ----------
    path : directory of a service, or an access file.
    """
    context = click.get_current_context()
    clients: dict[Path, Client] = context.meta.setdefault(_CLIENTS, {})
    if path not in clients:  # many jobs of a site share its connection
        clients[path] = context.with_resource(Client(path))
    return clients[path]


def service_option(command: _Command) -> _Command:
    """Add --dir and --access; `service` is a `Client` of the service."""
    command = directory_as("service", _service)(command)
    return click.option(
        "--access",
        metavar="FILE",
        envvar="RESHAPE_ACCESS",
        show_envvar=True,
        is_eager=True,
        expose_value=False,
        callback=_note_access,
        help="Access file of a service on TCP; in place of --dir.",
    )(command)


@contextmanager
def _completing(context: click.Context) -> Iterator[Client]:
    """Yield the client that the command line names; what goes wrong ends the block."""
    with suppress(ReshapeError, OSError), context.params.get("service") or Client() as client:
        yield client


def complete_jobs(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the number of a queued or running job; its name and state are shown beside it."""
    items: list[CompletionItem] = []
    with _completing(context) as client:
        for job in client.ask(m.ListJobs(), m.JobListing, _PATIENCE_S).jobs:
            number = job.label.partition("_[")[0] or str(job.job)
            if number.startswith(incomplete):
                items.append(CompletionItem(number, help=f"{job.name} {job.state}"))
    return items


def complete_partitions(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of a partition of the service."""
    names: list[str] = []
    with _completing(context) as client:
        names = [part.name for part in client.info(_PATIENCE_S).partitions]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_nodes(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of a node of the service; its state is shown beside it."""
    nodes: list[m.NodeInfo] = []
    with _completing(context) as client:
        nodes = client.ask(m.ListMachine(part="nodes"), m.Nodes, _PATIENCE_S).nodes
    matching = (node for node in nodes if node.name.startswith(incomplete))
    return [CompletionItem(node.name, help=node.state) for node in matching]
